"""A submission on its way to SLURM, to hosts, or to this machine: questions, jobs, the result."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from hpml_jobs.cli.console import (
    console,
    print_json,
    print_note,
    say,
    sent_table,
    show_preview,
)
from hpml_jobs.cli.hints import next_commands
from hpml_jobs.cli.options import study_words
from hpml_jobs.cli.terminal import repeated
from hpml_jobs.core.errors import HpmlError, InterruptError, UsageError
from hpml_jobs.core.text import counted, few, hours_text
from hpml_jobs.slurm.commands import has_sbatch
from hpml_jobs.slurm.jobs import array_ids

if TYPE_CHECKING:
    from hpml_jobs.study.study import Study
    from hpml_jobs.submit.job_requests import JobRequest
    from hpml_jobs.submit.selection import Selection


class DeliveryOptions(NamedTuple):
    """The manner of a submission: what is printed, whether it may ask; `dry_run`: preview only."""

    json: bool = False
    yes: bool = False
    all_cells: bool = False
    dry_run: bool = False


def deliver(
    study: "Study",
    choose: "Callable[[], Selection | None]",
    options: DeliveryOptions,
    command: str = "",
) -> bool:
    """Submit the cells of a study that `choose` selects, or run them on this machine.

    `choose` returns None if there is nothing to submit, and has said so. The `command` is noted in
    the study. Return whether cells ran here.

    Raises:
        HpmlError: the user declined, SLURM refused, or a cell that ran here did not finish.
        InterruptError: Ctrl-C; the message says what was submitted.
        UsageError: the cells exceed the budget, or the follow-up job cannot be submitted.
    """
    from hpml_jobs.cli.run import run_here

    if options.dry_run:
        if selection := choose():
            _preview(selection, options)
        return False
    try:
        with study.submitting() as lock_note:
            print_note(lock_note)
            selection = choose()
            job = _start(selection, options, command) if selection else ""
    except KeyboardInterrupt as fault:
        raise InterruptError(
            f"interrupted; nothing was submitted; again: {repeated()}"
        ) from fault
    if not (selection and job):
        return False
    # another submission does not wait for these cells
    run_here(selection, job, json=options.json)
    return bool(selection.send)


def _start(selection: "Selection", options: DeliveryOptions, command: str) -> str:
    """Submit the selected cells, or announce that they run here; return the job that runs them."""
    from hpml_jobs.study.snapshot import restore_records
    from hpml_jobs.submit.local import announce

    plan = selection.plan
    restore_records(selection.status.snapshots)
    if selection.unlike and plan.goal:
        raise UsageError(selection.unlike)
    print_note(*selection.notes, selection.unlike)
    if selection.unlike:
        _ask("run them anyway?", options)
    if plan.cluster.hosts and selection.send:
        from hpml_jobs.submit.ssh import check_hosts

        check_hosts(plan.cluster, plan.study.root)
    requests = [] if plan.cluster.is_local else _checked_requests(selection, options)
    if command and (selection.send or plan.goal):
        plan.study.add_command(command)
    if not plan.cluster.is_local:
        _submit(selection, requests, options)
        return ""
    job = f"local-{os.getpid()}-{int(time.time())}"
    announce(plan, selection.send, job)
    return job


def _checked_requests(
    selection: "Selection", options: DeliveryOptions
) -> "list[JobRequest]":
    """Return the job requests of a selection, which nothing known here forbids, and the user wants.

    Raises:
        HpmlError: the user declined.
        UsageError: they are refused.
    """
    from hpml_jobs.doctor.before_queue import before_queue
    from hpml_jobs.submit.job_requests import check_submission, make_requests

    requests = make_requests(selection.plan, selection.send)
    check_submission(selection, requests)
    if requests:
        print_note(*before_queue(selection.plan))
        _confirm(selection, requests, options)
    return requests


def _preview(selection: "Selection", options: DeliveryOptions) -> None:
    """Show what would be submitted.

    Raises:
        UsageError: it would be refused.
    """
    from hpml_jobs.doctor.before_queue import before_queue

    plan = selection.plan
    print_note(*selection.notes, selection.unlike)
    refused = show_preview(selection, json=options.json, all_cells=options.all_cells)
    try:
        if has_sbatch() and not (refused or plan.cluster.is_local):
            print_note(*before_queue(plan))
    except UsageError as error:
        refused = str(error)
    if refused:
        raise UsageError(f"it would be refused: {refused}")


def _confirm(
    selection: "Selection", requests: "list[JobRequest]", options: DeliveryOptions
) -> None:
    """Print the GPU-hours and the number of jobs; on a terminal ask above the cluster's limit."""
    if options.json:
        return
    from hpml_jobs.submit.job_requests import most_gpu_hours

    hours = most_gpu_hours(selection.plan, requests)
    cells, jobs = counted(len(selection.send), "cell"), counted(len(requests), "job")
    most = f"up to {hours_text(hours)} GPU-hours: " if hours else ""
    say(f"{most}{cells} as {jobs}")
    limit = selection.plan.cluster.confirm_gpu_hours
    if limit is not None and hours > limit:
        _ask(f"more than cluster.confirm_gpu_hours={limit:g}; submit?", options)


def _ask(question: str, options: DeliveryOptions) -> None:
    """Ask on a terminal whether to submit, where neither --yes nor --json forbids a question.

    Raises:
        HpmlError: the user declined.
    """
    if options.yes or options.json or not is_interactive():
        return
    answer = ""
    with suppress(EOFError):
        answer = input(f"{question} [y/N] ").strip().lower()
    if answer not in ("y", "yes"):
        raise HpmlError("nothing was submitted; --yes submits without asking")


def is_interactive() -> bool:
    """Return whether a person reads the output and types the input."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _submit(
    selection: "Selection", requests: "list[JobRequest]", options: DeliveryOptions
) -> None:
    """Submit every request and the follow-up job; print a line per job, then a summary.

    Ctrl-C takes effect between two sbatch calls.

    Raises:
        HpmlError: SLURM refused; what it accepted before is printed all the same.
        InterruptError: Ctrl-C; the message says what was submitted.
    """
    from hpml_jobs.submit.job_requests import isolation_note
    from hpml_jobs.submit.send import NoJobError, send, send_followup

    print_note(isolation_note(selection.plan.cluster, requests))
    jobs: dict[str, str] = {}  # by slug
    followup = None
    try:
        with _deferred_interrupts() as check_interrupt:
            try:
                for request, sent in send(selection.plan, requests, check_interrupt):
                    jobs |= sent
                    if not options.json:
                        say(f"job {', '.join(array_ids(sent.values()))}, {request}")
                followup = send_followup(selection, jobs.values())
                check_interrupt()
            finally:
                if jobs or not selection.send:
                    _print_result(selection, requests, jobs, followup, options)
    except NoJobError:  # its message says what was submitted
        raise
    except KeyboardInterrupt as fault:
        raise InterruptError(
            f"interrupted; {_what_was_sent(selection, jobs)}"
        ) from fault
    except HpmlError as fault:
        raise HpmlError(f"{fault}; {_what_was_sent(selection, jobs)}") from fault


@contextmanager
def _deferred_interrupts() -> Iterator[Callable[[], None]]:
    """Let the first Ctrl-C only be noted, so that no job is submitted without a manifest line.

    Yield a function that raises KeyboardInterrupt if Ctrl-C was pressed. The second one raises it
    at once.
    """
    is_requested = False

    def check() -> None:
        if is_requested:
            raise KeyboardInterrupt

    def note(_signal: int, _frame: FrameType | None) -> None:
        nonlocal is_requested
        check()
        is_requested = True
        print_note(
            "stopping after the present step; press Ctrl-C again to stop at once"
        )

    before = signal.signal(signal.SIGINT, note)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)


def _what_was_sent(selection: "Selection", jobs: dict[str, str]) -> str:
    """Return which cells were submitted before a submission broke off, and how to go on."""
    rest = [planned.slug for planned in selection.send if planned.slug not in jobs]
    ids = ", ".join(array_ids(jobs.values()))
    sent = f"{counted(len(jobs), 'cell')} (SLURM {ids})" if jobs else "no cell"
    if not rest:
        return f"submitted: {sent}, which is all"
    more = f"not submitted: {few(rest, most=3)}; to submit the rest: {repeated()}"
    return f"submitted: {sent}; {more}"


def _print_result(
    selection: "Selection",
    requests: "list[JobRequest]",
    jobs: dict[str, str],
    followup: str | None,
    options: DeliveryOptions,
) -> None:
    """Print the cells with their jobs and the next command, or JSON."""
    from hpml_jobs.submit.explain import cell_rows
    from hpml_jobs.submit.job_requests import gpu_hours_of

    plan, left_out = selection.plan, selection.left_out
    study = plan.study
    rows = cell_rows(selection, jobs)
    if options.json:
        print_json(
            {
                "study": study.name,
                "folder": str(study.root),
                "cells": rows,
                "gpu_hours": gpu_hours_of(requests),
                "closing": followup,
            }
        )
        return
    if left_out:  # else it is all that was typed
        console().print(sent_table(rows, all_cells=options.all_cells))
    left = f", {len(left_out)} left out" if left_out else ""
    if jobs:
        ids = array_ids(jobs.values())
        cells_as_jobs = f"{counted(len(jobs), 'cell')} as {counted(len(ids), 'job')}"
        print(f"submitted {cells_as_jobs} (SLURM {', '.join(ids)}){left}")
    else:
        print(
            f"nothing submitted{left}: every cell of study {study.name} is finished, pending, "
            "running or unknown"
        )
    if followup:
        does = "writes the report" if plan.goal is None else "submits the next cells"
        print(f"then job {followup} {does}")
    print(f"study {study.name} in {study.root}")
    has_active = any(state.outcome.may_run for state in left_out.values())
    print(next_commands(study_words(study), watch=bool(jobs) or has_active))
