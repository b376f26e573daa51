"""Commands that send or run cells: submit, plan, run, fetch."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpml_jobs.cli.console import print_json
from hpml_jobs.cli.deliver import check_order, deliver, rows_of
from hpml_jobs.cli.options import ConfigDir, Json, Multirun, Words
from hpml_jobs.core.text import counted
from hpml_jobs.errors import HpmlError, UsageError

if TYPE_CHECKING:
    from hpml_jobs.plan.plan import Plan, PlannedCell


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)


def _plan(
    words: list[str] | None, multirun: bool, config_dir: Path | None, **options: bool
) -> "Plan":
    from hpml_jobs.plan.plan import make_plan
    from hpml_jobs.plan.sweep import expand

    sweep = expand(words or [], multirun=multirun, config_dir=config_dir)
    return make_plan(sweep, say=_say, **options)


def submit(
    words: Words = None,
    multirun: Multirun = False,
    config_dir: ConfigDir = None,
    json: Json = False,
) -> None:
    """Submit a study, or run it here if there is no SLURM.

    Finished, pending and running cells are skipped.

    Example: hpml-jobs -m gpus=1,2,4 batch=32,128,512
    """
    from hpml_jobs.core.cluster import Launcher
    from hpml_jobs.submit.selection import select

    plan = _plan(words, multirun, config_dir)
    check_order(plan)
    plan.study.create()
    with plan.study.submitting():
        selection = select(plan)
        if plan.cluster.launcher is Launcher.SLURM:
            deliver(plan, selection, json=json)
            return
    deliver(plan, selection, json=json)  # which takes as long as its cells


def plan(
    words: Words = None,
    multirun: Multirun = False,
    config_dir: ConfigDir = None,
    json: Json = False,
) -> None:
    """Show the cells, job scripts, GPU-hours and values of a submission; submit nothing.

    Example: hpml-jobs plan -m gpus=1,2,4 batch=32,128,512 cluster=greene
    """
    from hpml_jobs.cli.console import console, sent_table, values_table
    from hpml_jobs.core.cluster import Launcher
    from hpml_jobs.submit.batches import batches
    from hpml_jobs.submit.explain import scripts, values
    from hpml_jobs.submit.selection import select

    made = _plan(words, multirun, config_dir, fetch=False)
    selection = select(made)
    rows, texts, origins = rows_of(made, selection, {}), scripts(made, selection), values(made)
    hours = sum(batch.gpu_hours for batch in batches(made, selection.send))
    refused = _refusal(made)
    if json:
        print_json(
            {
                "study": made.study.name,
                "gpu_hours": hours,
                "refused": refused,
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
    here = made.cluster.launcher is Launcher.LOCAL
    how = "on this machine, one after another" if here else f"as {counted(len(texts), 'job')}"
    print(
        f"nothing was sent; it would be {sends} {how} ({left} left out), "
        f"{hours:.3g} GPU-hours at most, study {made.study.name} in {made.study.root}"
    )
    if refused:
        print(f"it would be refused: {refused}")


def _refusal(made: "Plan") -> str:
    """Why a plan would not be sent, if so."""
    try:
        check_order(made)
    except UsageError as fault:
        return str(fault)
    return ""


def run(
    words: Words = None,
    multirun: Multirun = False,
    config_dir: ConfigDir = None,
    index: Annotated[
        int | None,
        typer.Option(
            "--index", metavar="N", help="with -m: number of the cell in the sweep, from 0"
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Run one cell here: on a laptop, or inside an allocation (as sbatch/*.sbatch do).

    Example: hpml-jobs run gpus=2 batch=64 cluster=local
    """
    from hpml_jobs.core.processes import ignore_submitit_signal
    from hpml_jobs.job.run import attempt_cell
    from hpml_jobs.submit.send import write_cells

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


def _with_leave(plan: "Plan", one: "PlannedCell") -> "PlannedCell":
    from hpml_jobs.core.validation import InvalidRecordError
    from hpml_jobs.submit.selection import superseding

    try:
        return superseding(plan, one) if plan.rerun else one
    except InvalidRecordError:
        return one  # what is there is no record; the attempt replaces it


def fetch(words: Words = None, config_dir: ConfigDir = None) -> None:
    """Download the data set, once, on the login node.

    Example: hpml-jobs fetch data.root=/scratch/me/data
    """
    from hpml_jobs.plan.data import fetch as fetch_data
    from hpml_jobs.plan.sweep import expand

    fetch_data(expand(words or [], multirun=False, config_dir=config_dir).settings[0], _say)
