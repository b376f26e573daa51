"""Commands that send or run cells: submit, plan, run, fetch."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpml_jobs.attempt import Progress
from hpml_jobs.errors import HpmlError, UsageError
from hpml_jobs.finding import outputs_words
from hpml_jobs.screen import print_json
from hpml_jobs.study import CellFolder
from hpml_jobs.wording import counted

if TYPE_CHECKING:
    from hpml_jobs.submit.cells import Ordered, Plan
    from hpml_jobs.submit.selection import Selection

Words = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE…", help="see hpml-jobs --help")
]
Multirun = Annotated[bool, typer.Option("-m", "--multirun", help="sweep over key=a,b,c")]
ConfigDir = Annotated[
    Path | None, typer.Option("--config-dir", help="your own configs: cluster/, workload/, grid/")
]
Json = Annotated[bool, typer.Option("--json", help="for programs: JSON on standard output")]


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)


def _plan(
    words: list[str] | None, multirun: bool, config_dir: Path | None, **options: bool
) -> "Plan":
    from hpml_jobs.submit.cells import make_plan  # noqa: PLC0415  (Hydra loads only here)
    from hpml_jobs.submit.sweep import expand  # noqa: PLC0415

    if config_dir is not None and not config_dir.is_dir():
        raise UsageError(f"--config-dir {config_dir}: there is no such folder")
    sweep = expand(words or [], multirun=multirun, config_dir=config_dir)
    return make_plan(sweep, say=_say, **options)


def submit(
    words: Words = None,
    multirun: Multirun = False,
    config_dir: ConfigDir = None,
    json: Json = False,
) -> None:
    """Send a study. Example: hpml-jobs -m gpus=1,2,4 batch=32,128,512"""
    from hpml_jobs.cluster import Launcher  # noqa: PLC0415
    from hpml_jobs.submit.launch import SbatchRefusedError, send  # noqa: PLC0415
    from hpml_jobs.submit.selection import select  # noqa: PLC0415

    plan = _plan(words, multirun, config_dir)
    plan.study.create()
    selection = select(plan)
    if plan.cluster.launcher is Launcher.LOCAL:
        _run_here(plan, selection, json)
        return
    try:
        jobs = send(plan, selection.send)
    except SbatchRefusedError as refused:
        if refused.sent:
            _show_sent(plan, selection, refused.sent, json)
        raise
    _show_sent(plan, selection, jobs, json)


def _rows(plan: "Plan", selection: "Selection", jobs: dict[str, str]) -> list[dict[str, str]]:
    rows = []
    for one in plan.cells:
        slug = one.cell.slug
        left = selection.left_out.get(slug)
        why = f"left out: {left.outcome.value}" if left else selection.because[slug]
        job = (left.job if left else jobs.get(slug)) or "–"
        rows.append({"cell": slug, "shape": str(one.shape), "job": job, "why": why})
    return rows


def _show_sent(plan: "Plan", selection: "Selection", jobs: dict[str, str], json: bool) -> None:
    from hpml_jobs.screen import console, sent_table  # noqa: PLC0415
    from hpml_jobs.slurm import array_ids  # noqa: PLC0415

    rows = _rows(plan, selection, jobs)
    if json:
        print_json({"study": plan.study.name, "folder": str(plan.study.root), "cells": rows})
        return
    console().print(sent_table((r["cell"], r["shape"], r["job"], r["why"]) for r in rows))
    sent = [jobs[one.cell.slug] for one in selection.send if one.cell.slug in jobs]
    left = f", {len(selection.left_out)} left out" if selection.left_out else ""
    if not sent:
        print(f"nothing sent{left}: every cell of study {plan.study.name} is finished or under way")
    else:
        ids = array_ids(sent)
        how = f"{counted(len(sent), 'cell')} as {counted(len(ids), 'array')}"
        print(f"sent {how} (SLURM {', '.join(ids)}){left}")
    named = f"{plan.study.name}{_outputs_hint(plan)}"
    print(f"study {plan.study.name} in {plan.study.root}")
    print(f"next: hpml-jobs watch {named}, then hpml-jobs collect {named}")


def _run_here(plan: "Plan", selection: "Selection", json: bool) -> None:
    """The cells on this machine, with a line per cell as it ends."""
    from rich.console import Console  # noqa: PLC0415

    from hpml_jobs.submit.local import run_all  # noqa: PLC0415
    from hpml_jobs.submit.status import states  # noqa: PLC0415

    out = sys.stderr if json else sys.stdout
    total, left_out = len(selection.send), len(selection.left_out)
    left = f", {left_out} left out (finished or under way)" if left_out else ""
    print(f"study {plan.study.name}: {counted(total, 'cell')} to run{left}", file=out)
    seen: set[str] = set()
    with Console(stderr=True).status("starting") as line:

        def watch(index: int, folder: CellFolder, progress: Progress) -> None:
            epochs = (
                f"epoch {progress.epoch} of {progress.epochs}" if progress.epochs else "starting"
            )
            line.update(f"cell {index + 1} of {total}: {folder.slug}, {epochs}")

        def ended(folder: CellFolder) -> None:
            seen.add(folder.slug)
            print(f"  {len(seen)}/{total}  {_cell_line(folder)}", flush=True, file=out)

        run_all(plan, selection.send, watch, ended)
    outcomes = [state for state in states(plan.study) if state.slug in seen]
    failed = [state for state in outcomes if not state.outcome.finished]
    if json:
        print_json({"study": plan.study.name, "folder": str(plan.study.root), "cells": outcomes})
    print(f"next: hpml-jobs collect {plan.study.name}{_outputs_hint(plan)}", file=out)
    if failed:
        raise HpmlError(
            f"{len(failed)} of {total} cells did not finish; "
            f"hpml-jobs logs {plan.study.name} says why"
        )


def _outputs_hint(plan: "Plan") -> str:
    """What status and collect must be told to find the study from here."""
    from hpml_jobs.submit.personal import personal_outputs  # noqa: PLC0415

    folder = plan.study.root.parent
    found = folder == personal_outputs().expanduser().resolve()
    return outputs_words(None if found else folder)


def _cell_line(folder: CellFolder) -> str:
    """One finished cell in one line."""
    end = folder.last_end()
    record = folder.read_record() if end and end.outcome.finished else None
    if record is not None and record.ranks:
        trained = f"epoch {record.epoch_s:8.3f} s   training accuracy {record.accuracy:.3f}"
        tested = record.ranks[0].test_accuracy
        return f"{folder.slug:44} {trained}" + ("" if tested is None else f", test {tested:.3f}")
    outcome = end.outcome.value if end else "failed"
    return f"{folder.slug:44} {outcome}: {end.reason if end else 'no last words'}"


def plan(
    words: Words = None,
    multirun: Multirun = False,
    config_dir: ConfigDir = None,
    json: Json = False,
) -> None:
    """What would be sent: cells, scripts, GPU-hours, and where each value came from. Sends nothing.

    Example: hpml-jobs plan -m gpus=1,2,4 batch=32,128,512 cluster=greene
    """
    from hpml_jobs.screen import console, sent_table, values_table  # noqa: PLC0415
    from hpml_jobs.submit.explain import scripts, values  # noqa: PLC0415
    from hpml_jobs.submit.selection import select  # noqa: PLC0415

    made = _plan(words, multirun, config_dir, fetch=False)
    selection = select(made)
    rows, texts, origins = _rows(made, selection, {}), scripts(made, selection), values(made)
    hours = sum(one.gpu_hours for one in selection.send)
    if json:
        print_json(
            {
                "study": made.study.name,
                "gpu_hours": hours,
                "cells": rows,
                "scripts": [{"shape": shape, "script": text} for shape, text in texts],
                "values": [
                    dict(zip(("key", "value", "from"), row, strict=True)) for row in origins
                ],
            }
        )
        return
    out = console()
    for shape, text in texts:
        print(f"---- {shape}\n{text}")
    out.print(values_table(origins))
    print()
    out.print(sent_table((r["cell"], r["shape"], r["job"], r["why"]) for r in rows))
    sends, left = counted(len(selection.send), "cell"), len(selection.left_out)
    how = f"as {counted(len(texts), 'array')}" if texts else "on this machine, one after another"
    print(
        f"nothing was sent; it would be {sends} {how} ({left} left out), "
        f"{hours:g} GPU-hours at most, study {made.study.name} in {made.study.root}"
    )


def run(
    words: Words = None,
    multirun: Multirun = False,
    config_dir: ConfigDir = None,
    index: Annotated[
        int | None, typer.Option("--index", help="with -m: only this cell of the sweep (from 0)")
    ] = None,
    json: Json = False,
) -> None:
    """One cell here and now: on a laptop, or inside an allocation (what sbatch/*.sbatch call).

    Example: hpml-jobs run gpus=2 batch=64 cluster=local
    """
    from hpml_jobs.lifeline import ignore_submitit_signal  # noqa: PLC0415
    from hpml_jobs.submit.job import attempt_cell  # noqa: PLC0415
    from hpml_jobs.submit.launch import write_cells  # noqa: PLC0415

    ignore_submitit_signal()
    made = _plan(words, multirun, config_dir, sending=False, fetch=False)
    if index is None and len(made.cells) != 1:
        raise UsageError(
            f"run is for one cell, these are {len(made.cells)}: choose with --index 0…"
        )
    if index is not None and not 0 <= index < len(made.cells):
        raise UsageError(f"--index {index}: this sweep has cells 0 to {len(made.cells) - 1}")
    chosen = made.cells[index or 0]
    made.study.create()
    folder = made.study.cell(chosen.cell.slug)
    write_cells(made.study, [_with_leave(made, chosen)])
    end = attempt_cell(folder)
    if json:
        print_json(end)
    if not end.outcome.finished:
        raise HpmlError(f"{folder.slug} {end.outcome.value}: {end.reason}")


def _with_leave(plan: "Plan", one: "Ordered") -> "Ordered":
    from hpml_jobs.decoding import InvalidRecordError  # noqa: PLC0415
    from hpml_jobs.submit.selection import superseding  # noqa: PLC0415

    try:
        return superseding(plan, one) if plan.rerun else one
    except InvalidRecordError:
        return one  # what is there is no record; the attempt replaces it


def fetch(words: Words = None, config_dir: ConfigDir = None) -> None:
    """The data set, once, on the login node. Example: hpml-jobs fetch data.root=/scratch/me/data"""
    from hpml_jobs.submit.datasets import fetch as fetch_data  # noqa: PLC0415
    from hpml_jobs.submit.sweep import expand  # noqa: PLC0415

    fetch_data(expand(words or [], multirun=False, config_dir=config_dir).settings[0], _say)
