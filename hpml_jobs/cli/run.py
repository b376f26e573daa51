"""Command run; a study that runs on this machine."""

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, TextIO

import typer
from typer import Option

from hpml_jobs.cli.console import Console, print_json, print_note
from hpml_jobs.cli.hints import next_commands
from hpml_jobs.cli.options import (
    ConfigDir,
    Multirun,
    Overrides,
    study_words,
)
from hpml_jobs.cli.terminal import repeated
from hpml_jobs.core.errors import HpmlError, InterruptError, UsageError
from hpml_jobs.core.text import PROGRAM, counted, duration_text, with_command
from hpml_jobs.study.cell_folder import CellFolder, Progress

if TYPE_CHECKING:
    from hpml_jobs.plan.cells import PlannedCell
    from hpml_jobs.study.study import Study
    from hpml_jobs.submit.selection import Selection


def run(
    overrides: Overrides = None,
    multirun: Multirun = False,
    config_dir: ConfigDir = None,
    index: Annotated[
        int | None,
        Option(
            "--index",
            metavar="N",
            help="with -m: number of the cell in the sweep, from 0",
        ),
    ] = None,
) -> None:
    """Run one cell here: on a laptop, or inside an allocation (as sbatch/*.sbatch do).

    Example: hpml-jobs run gpus=2 batch=64 cluster=local
    """
    from hpml_jobs.core.processes import ignore_submitit_signal
    from hpml_jobs.core.validation import InvalidRecordError
    from hpml_jobs.job.run import attempt_cell
    from hpml_jobs.job.workers import Job
    from hpml_jobs.plan.resolve import make_plan
    from hpml_jobs.plan.sweep import expand
    from hpml_jobs.slurm.jobs import is_slurm
    from hpml_jobs.submit.local import announce
    from hpml_jobs.submit.selection import superseding
    from hpml_jobs.submit.send import write_cells

    ignore_submitit_signal()
    sweep = expand(overrides or [], multirun=multirun, config_dir=config_dir)
    plan = make_plan(sweep, sending=False, fetch=False, notify=print_note)
    if plan.cluster.hosts:
        raise UsageError(
            "run is for this machine: leave the word run out, or use cluster=local"
        )
    planned = _cell_of_index(plan.cells, index)
    folder, job = plan.study.cell(planned.slug), Job.current()
    with plan.study.submitting():
        _check_idle(plan.study, folder.slug, job.id)
        if plan.rerun:
            # a file that is no record is replaced by the attempt
            with suppress(InvalidRecordError):
                planned = superseding(planned, folder.read_record())
        if is_slurm(job.id):
            write_cells(plan.study, [planned])
        else:
            announce(plan, [planned], job.id)
    end = attempt_cell(folder, job)
    if not end.outcome.finished:
        raise typer.Exit(1)


def _cell_of_index(cells: "list[PlannedCell]", index: int | None) -> "PlannedCell":
    count = len(cells)
    if index is None:
        if count != 1:
            raise UsageError(
                f"run is for one cell, these are {count}: choose one with --index"
            )
        index = 0
    if not 0 <= index < count:
        raise UsageError(f"--index {index}: this sweep has cells 0 to {count - 1}")
    return cells[index]


def _check_idle(study: "Study", slug: str, job: str) -> None:
    """Check that no other job of the cell than this one is pending or running.

    Raises:
        HpmlError: there is one, or SLURM does not say so.
    """
    from hpml_jobs.status.states import study_status

    status = study_status(study)
    state = next((state for state in status.states if state.slug == slug), None)
    if state is None or not state.outcome.may_run or state.job == job:
        return
    if status.slurm.no_squeue and not state.outcome.active:
        print_note(
            f"squeue is not on PATH here: job {state.job} of {slug} may be running"
        )
        return
    raise HpmlError(
        with_command(
            f"{slug} is {state.outcome.value} as job {state.job} ({state.brief}): wait for it, or "
            "cancel it",
            f"{PROGRAM} cancel {study_words(study)} {slug}",
        )
    )


def run_here(selection: "Selection", job: str, *, json: bool) -> None:
    """Run the announced cells one after another.

    Raises:
        HpmlError: a cell did not finish.
        InterruptError: Ctrl-C; the message has the command to go on.
    """
    from hpml_jobs.status.states import study_status

    plan, out = selection.plan, sys.stderr if json else sys.stdout
    total, left_out = len(selection.send), len(selection.left_out)
    left = f", {left_out} left out (finished, pending or running)" * bool(left_out)
    if plan.goal is None:
        print(
            f"study {plan.study.name}: {counted(total, 'cell')} to run{left}", file=out
        )
    try:
        ended = _run_cells(selection, job, out)
    except KeyboardInterrupt as fault:
        raise InterruptError(
            with_command(
                "interrupted; to run the cells that have not finished", repeated()
            )
        ) from fault
    status = study_status(plan.study, with_checks=json)
    ended_states = [state for state in status.states if state.slug in ended]
    if json:
        print_json(
            {
                "study": plan.study.name,
                "folder": str(plan.study.root),
                "cells": ended_states,
            }
        )
    failed = len(ended) - sum(state.outcome.finished for state in ended_states)
    words = study_words(plan.study)
    if not failed:
        if not plan.has_followup:
            print(next_commands(words, watch=False), file=out)
        return
    raise HpmlError(
        with_command(
            f"{failed} of {total} cells did not finish; to see why",
            f"{PROGRAM} logs {words}",
        )
    )


def _run_cells(selection: "Selection", job: str, out: TextIO) -> set[str]:
    """Run the cells with a progress line on stderr; return the names of those that ended."""
    from hpml_jobs.report.frame.captions import run_words
    from hpml_jobs.submit.local import run_all

    total = len(selection.send)
    began = time.monotonic()
    ended: set[str] = set()
    # more processes take longer to start, and share the CPUs
    processes = {p.slug: p.cell.processes for p in selection.send}
    words = {
        p.slug: f"{p.block}: " * bool(p.block) + run_words(p.cell)
        for p in selection.send
    }
    with Console(stderr=True).status("starting") as status:

        def show_progress(index: int, folder: CellFolder, progress: Progress) -> None:
            epoch = "starting"
            if progress.epochs:
                epoch = f"epoch {progress.epoch} of {progress.epochs}"
            status.update(f"cell {index + 1} of {total}: {words[folder.slug]}, {epoch}")

        def show_end(folder: CellFolder) -> None:
            ended.add(folder.slug)
            done = sum(processes[slug] for slug in ended)
            rest = sum(processes.values()) - done
            left_s = (time.monotonic() - began) / done * rest
            left = f"   (about {duration_text(left_s)} left)" * bool(rest)
            line = f"{words[folder.slug]}   {_ending(folder)}{left}"
            print(f"  {len(ended)}/{total}  {line}", flush=True, file=out)

        run_all(selection, job, show_progress, show_end)
    return ended


def _ending(folder: CellFolder) -> str:
    """Return how a cell ended: its epoch time, or why it has none."""
    end = folder.last_end()
    if end is None:
        return "failed: ended without an exit report"
    record = folder.read_record() if end.outcome.finished else None
    if record is None or not record.ranks:
        return f"{end.outcome.value}: {end.reason}"
    return f"epoch {record.timed_s:#.3g} s"
