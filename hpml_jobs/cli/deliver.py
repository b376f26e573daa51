"""A plan on its way: sent to SLURM or run here, and said what became of it."""

import sys
from typing import TYPE_CHECKING, NamedTuple

from hpml_jobs.cli.console import console, print_json, sent_table
from hpml_jobs.cli.options import outputs_words
from hpml_jobs.core.cluster import Launcher
from hpml_jobs.core.text import counted
from hpml_jobs.errors import HpmlError
from hpml_jobs.slurm.jobs import array_ids
from hpml_jobs.study.attempt import Progress
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.study.study import Study

if TYPE_CHECKING:
    from hpml_jobs.plan.plan import Plan
    from hpml_jobs.status.states import StudyStatus
    from hpml_jobs.submit.selection import Selection


def check_order(plan: "Plan") -> None:
    """Refuse a new study that could not be delivered, before anything of it is there.

    Raises:
        UsageError: it would cost more than the budget, or the closing job cannot be sent.
    """
    from hpml_jobs.submit.batches import batches, check_budget
    from hpml_jobs.submit.followup import check_closing

    if plan.cluster.launcher is Launcher.SLURM:
        check_closing(plan)
        if not plan.study.root.exists():
            check_budget(plan.cluster, batches(plan, plan.cells), 0)


def deliver(plan: "Plan", selection: "Selection", *, json: bool) -> None:
    """Send what was selected, or run it here; what comes after it too.

    Raises:
        HpmlError: SLURM refused, or a cell run here did not finish.
        UsageError: it would cost more than the budget, or the closing job cannot be sent.
    """
    from hpml_jobs.status.states import study_status
    from hpml_jobs.status.usage import committed_gpu_hours
    from hpml_jobs.submit.batches import Way, batches, check_budget
    from hpml_jobs.submit.send import SbatchRefusedError, send

    if plan.cluster.launcher is Launcher.LOCAL:
        _run_here(plan, selection, json)
        return
    limited = plan.cluster.gpu_hours_budget is not None
    before = committed_gpu_hours(study_status(plan.study, all_jobs=True)) if limited else 0
    going = batches(plan, selection.send)
    hours = check_budget(plan.cluster, going, before)
    together = tuple(str(batch) for batch in going if batch.way is not Way.ARRAY)
    sent = Sent({}, hours, together)
    try:
        sent = sent._replace(jobs=send(plan, selection.send))
        sent = sent._replace(closing=_close(plan, selection, sent.jobs))
    except SbatchRefusedError as refused:
        sent = sent._replace(jobs=refused.sent)
        raise
    finally:  # what was sent is said, whatever was refused after it
        if sent.jobs or not selection.send:
            _show_sent(plan, selection, sent, json)


class Sent(NamedTuple):
    """The job of each cell that was sent, the GPU-hours asked for, and the job after all others.

    `together` says what allocations that cells share ask for.
    """

    jobs: dict[str, str]
    hours: float
    together: tuple[str, ...] = ()
    closing: str | None = None


def _close(plan: "Plan", selection: "Selection", jobs: dict[str, str]) -> str | None:
    """Send the job that comes after all others, where one is wanted."""
    from hpml_jobs.submit.followup import send_closing, wants_closing
    from hpml_jobs.submit.sbatch import RefusedError

    before = [state.job for state in selection.left_out.values() if state.outcome.active]
    awaited = [job for job in (*jobs.values(), *before) if job]
    if not (wants_closing(plan) and awaited):
        return None
    try:
        return send_closing(plan, awaited)
    except RefusedError as fault:
        raise HpmlError(
            f"the cells are on their way, but sbatch refused the job after them: {fault}; "
            f"when they are done, hpml-jobs collect {plan.study.name}"
        ) from fault


def rows_of(plan: "Plan", selection: "Selection", jobs: dict[str, str]) -> list[dict[str, str]]:
    """Every cell of a plan with what became of it."""
    rows = []
    for one in plan.cells:
        slug = one.cell.slug
        left = selection.left_out.get(slug)
        why = f"left out: {left.outcome.value}" if left else selection.because[slug]
        job = (left.job if left else jobs.get(slug)) or "–"
        rows.append({"cell": slug, "shape": str(one.shape), "job": job, "why": why})
    return rows


def _show_sent(plan: "Plan", selection: "Selection", went: Sent, json: bool) -> None:
    jobs, hours, together, closing = went
    rows = rows_of(plan, selection, jobs)
    if json:
        about = {"study": plan.study.name, "folder": str(plan.study.root), "cells": rows}
        print_json(about | {"gpu_hours": hours, "closing": closing})
        return
    console().print(sent_table((r["cell"], r["shape"], r["job"], r["why"]) for r in rows))
    sent = [jobs[one.cell.slug] for one in selection.send if one.cell.slug in jobs]
    left = f", {len(selection.left_out)} left out" if selection.left_out else ""
    if not sent:
        print(f"nothing sent{left}: every cell of study {plan.study.name} is finished or under way")
    else:
        ids = array_ids(sent)
        for shared in together:
            print(f"in one allocation: {shared}")
        how = f"{counted(len(sent), 'cell')} as {counted(len(ids), 'job')}"
        print(f"sent {how} (SLURM {', '.join(ids)}){left}; {hours:.3g} GPU-hours at most")
    if closing:
        print(f"then job {closing} writes the report")
    named = f"{plan.study.name}{_outputs_hint(plan)}"
    print(f"study {plan.study.name} in {plan.study.root}")
    waits = sent or any(state.outcome.active for state in selection.left_out.values())
    print(f"next: {f'hpml-jobs watch {named}, then ' if waits else ''}hpml-jobs collect {named}")


def _run_here(plan: "Plan", selection: "Selection", json: bool) -> None:
    """The cells on this machine, with a line per cell as it ends."""
    from rich.console import Console

    from hpml_jobs.status.states import study_status
    from hpml_jobs.submit.local import run_all

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
    status = study_status(plan.study, with_checks=json)
    outcomes = [state for state in status.states if state.slug in seen]
    failed = [state for state in outcomes if not state.outcome.finished]
    if json:
        print_json({"study": plan.study.name, "folder": str(plan.study.root), "cells": outcomes})
    if plan.collect_after:
        _write_report(plan.study, status)
        print(f"the report is in {plan.study.report}", file=out)
    print(f"next: hpml-jobs collect {plan.study.name}{_outputs_hint(plan)}", file=out)
    if failed:
        raise HpmlError(
            f"{len(failed)} of {total} cells did not finish; "
            f"hpml-jobs logs {plan.study.name} says why"
        )


def _write_report(study: Study, status: "StudyStatus") -> None:
    from hpml_jobs.report.collect import make_report, write

    write(make_report(study.name, status.snapshots, status.states), study.report)


def _outputs_hint(plan: "Plan") -> str:
    """What status and collect must be told to find the study from here."""
    from hpml_jobs.plan.user_config import personal_outputs

    folder = plan.study.root.parent
    found = folder == personal_outputs().expanduser().resolve()
    return outputs_words(None if found else folder)


def _cell_line(folder: CellFolder) -> str:
    """One finished cell in one line."""
    end = folder.last_end()
    record = folder.read_record() if end and end.outcome.finished else None
    if record is not None and record.ranks:
        found = {"training accuracy": record.accuracy, "test": record.ranks[0].test_accuracy}
        told = (f"{what} {share:.3f}" for what, share in found.items() if share is not None)
        return f"{folder.slug:44} epoch {record.epoch_s:8.3f} s   {', '.join(told)}".rstrip()
    outcome = end.outcome.value if end else "failed"
    return f"{folder.slug:44} {outcome}: {end.reason if end else 'no last words'}"
