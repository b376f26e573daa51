"""A plan submitted to SLURM or run on this machine, and what is printed of it."""

import sys
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from hpml_jobs.cli.commands import repeated
from hpml_jobs.cli.console import console, print_json, say, sent_table
from hpml_jobs.cli.hints import next_commands
from hpml_jobs.core.cluster import Launcher
from hpml_jobs.core.text import counted
from hpml_jobs.errors import HpmlError, InterruptError
from hpml_jobs.slurm.jobs import array_ids
from hpml_jobs.slurm.states import Outcome

if TYPE_CHECKING:
    from hpml_jobs.plan.plan import Plan
    from hpml_jobs.submit.selection import Selection
    from hpml_jobs.submit.submission import Submission


NAMED_CELLS = 3
"""Cells that a message names at most."""


class Manner(NamedTuple):
    """The manner of a submission: what is printed, and whether it may ask."""

    json: bool = False
    yes: bool = False
    all_cells: bool = False


class DeclinedError(HpmlError):
    """The user declined a submission."""


def deliver(plan: "Plan", selection: "Selection", manner: Manner) -> None:
    """Submit the selected cells, or run them on this machine.

    Raises:
        DeclinedError: the user was asked and declined.
        HpmlError: SLURM refused, or a cell that ran on this machine did not finish.
        UsageError: the cells exceed the budget, or the follow-up job cannot be submitted.
    """
    from hpml_jobs.cli.local_run import run_here
    from hpml_jobs.submit.submission import prepare

    if plan.cluster.launcher is Launcher.LOCAL:
        run_here(plan, selection, json=manner.json)
        return
    submission = prepare(plan, selection)
    announce(submission, manner)
    submit_jobs(submission, manner)


def announce(submission: "Submission", manner: Manner) -> None:
    """Print the GPU-hours and jobs of a submission; on a terminal ask above the limit.

    Raises:
        DeclinedError: the user declined.
    """
    if manner.json or not submission.requests:
        return
    cells, jobs = len(submission.selection.send), len(submission.requests)
    size = f"{counted(cells, 'cell')} as {counted(jobs, 'job')}"
    hours, limit = submission.gpu_hours, submission.plan.cluster.confirm_gpu_hours
    say(f"up to {hours:.3g} GPU-hours: {size}")
    if manner.yes or limit is None or hours <= limit or not is_interactive():
        return
    try:
        answer = input(f"more than cluster.confirm_gpu_hours={limit:g}; submit? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise DeclinedError("nothing was submitted; --yes submits without asking")


def is_interactive() -> bool:
    """Return whether a person reads the output and types the input."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def submit_jobs(submission: "Submission", manner: Manner) -> None:
    """Submit job requests and the follow-up job; print a line per job, then a summary.

    Ctrl-C takes effect between two sbatch calls.

    Raises:
        HpmlError: SLURM refused; what it accepted before is printed all the same.
        InterruptError: Ctrl-C; the message says what was submitted.
    """
    from hpml_jobs.submit.interrupts import deferred_interrupts
    from hpml_jobs.submit.overlap import isolation_note
    from hpml_jobs.submit.sbatch import RefusedError
    from hpml_jobs.submit.send import send

    plan, selection = submission.plan, submission.selection
    if note := isolation_note(plan.cluster, submission.requests):
        say(note, note=True)
    jobs: dict[str, str] = {}
    followup = None
    try:
        with deferred_interrupts(partial(say, note=True)) as interrupts:
            for sent in send(plan.study, plan.cluster, submission.requests, interrupts.check):
                jobs |= sent.jobs
                if not manner.json:
                    say(sent)
            followup = _submit_followup(plan, selection, jobs)
            interrupts.check()
    except RefusedError:
        raise
    except KeyboardInterrupt as fault:
        raise InterruptError(f"interrupted; {_what_was_sent(submission, jobs)}") from fault
    except HpmlError as fault:
        raise HpmlError(f"{fault}; {_what_was_sent(submission, jobs)}") from fault
    finally:
        if jobs or not selection.send:
            if manner.json:
                _print_json(submission, jobs, followup)
            else:
                _print_summary(submission, jobs, followup, all_cells=manner.all_cells)


def _what_was_sent(submission: "Submission", jobs: dict[str, str]) -> str:
    """Return which cells were submitted before a submission broke off, and how to go on."""
    rest = [p.slug for p in submission.selection.send if p.slug not in jobs]
    ids = ", ".join(array_ids(jobs.values()))
    sent = (
        f"submitted: {counted(len(jobs), 'cell')} (SLURM {ids})" if jobs else "submitted: no cell"
    )
    if not rest:
        return f"{sent}, which is all"
    more = f" and {len(rest) - NAMED_CELLS} more" if len(rest) > NAMED_CELLS else ""
    named = f"{', '.join(rest[:NAMED_CELLS])}{more}"
    return f"{sent}; not submitted: {named}; to submit the rest: {repeated()}"


def _submit_followup(plan: "Plan", selection: "Selection", jobs: dict[str, str]) -> str | None:
    """Submit the follow-up job if the plan wants one and there are jobs to wait for."""
    from hpml_jobs.submit.followup import submit_followup, wants_followup
    from hpml_jobs.submit.sbatch import RefusedError

    earlier = [state.job for state in selection.left_out.values() if state.outcome.active]
    awaited = [job for job in (*jobs.values(), *earlier) if job]
    if not (wants_followup(plan) and awaited):
        return None
    try:
        return submit_followup(plan, awaited)
    except RefusedError as error:
        raise HpmlError(
            f"the cells were submitted, but sbatch refused the follow-up job: {error}; "
            f"when they have finished, run hpml-jobs collect {plan.study.name}"
        ) from error


def _print_json(submission: "Submission", jobs: dict[str, str], followup: str | None) -> None:
    from hpml_jobs.submit.explain import cell_rows

    study = submission.plan.study
    print_json(
        {
            "study": study.name,
            "folder": str(study.root),
            "cells": cell_rows(submission.plan, submission.selection, jobs),
            "gpu_hours": submission.gpu_hours,
            "closing": followup,
        }
    )


def _print_summary(
    submission: "Submission", jobs: dict[str, str], followup: str | None, *, all_cells: bool
) -> None:
    from hpml_jobs.submit.explain import cell_rows

    plan, left_out = submission.plan, submission.selection.left_out
    rows = cell_rows(plan, submission.selection, jobs)
    console().print(sent_table(rows, all_cells=all_cells))
    left = f", {len(left_out)} left out" if left_out else ""
    if jobs:
        ids = array_ids(jobs.values())
        cells_as_jobs = f"{counted(len(jobs), 'cell')} as {counted(len(ids), 'job')}"
        print(f"submitted {cells_as_jobs} (SLURM {', '.join(ids)}){left}")
    else:
        is_unknown = any(state.outcome is Outcome.UNKNOWN for state in left_out.values())
        unknown = ", or its job may be running" if is_unknown else ""
        print(
            f"nothing submitted{left}: every cell of study {plan.study.name} is finished, pending "
            f"or running{unknown}"
        )
    if followup:
        print(f"then job {followup} writes the report")
    print(f"study {plan.study.name} in {plan.study.root}")
    has_active = any(state.outcome.may_run for state in left_out.values())
    print(next_commands(plan, watch=bool(jobs) or has_active))
