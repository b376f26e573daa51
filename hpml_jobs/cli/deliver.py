"""A plan delivered: submitted to SLURM or run on this machine, and what is printed of it."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from hpml_jobs.cli.commands import repeated
from hpml_jobs.cli.console import Console, console, print_json, print_note, say, sent_table
from hpml_jobs.cli.hints import next_commands
from hpml_jobs.core.cluster import Launcher
from hpml_jobs.core.text import counted
from hpml_jobs.errors import HpmlError, InterruptError
from hpml_jobs.slurm.jobs import array_ids
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.study.attempt import Progress
from hpml_jobs.study.cell_folder import CellFolder

if TYPE_CHECKING:
    from hpml_jobs.plan.plan import Plan
    from hpml_jobs.submit.job_requests import Submission
    from hpml_jobs.submit.selection import Selection

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
    from hpml_jobs.submit.job_requests import prepare

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
    from hpml_jobs.submit.explain import isolation_note
    from hpml_jobs.submit.send import RefusedError, send

    plan, selection = submission.plan, submission.selection
    print_note(isolation_note(plan.cluster, submission.requests))
    jobs: dict[str, str] = {}
    followup = None
    try:
        with _deferred_interrupts() as interrupts:
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
            _print_result(submission, jobs, followup, manner)


class Interrupts:
    """Whether Ctrl-C was pressed."""

    def __init__(self) -> None:
        self.is_requested = False

    def check(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was pressed."""
        if self.is_requested:
            raise KeyboardInterrupt


@contextmanager
def _deferred_interrupts() -> Iterator[Interrupts]:
    """Let the first Ctrl-C only be noted, so that no job is submitted without a manifest line.

    The second one raises KeyboardInterrupt at once.
    """
    interrupts = Interrupts()
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    if not is_main or before is signal.SIG_IGN:
        yield interrupts
        return

    def note(_signal: int, _frame: FrameType | None) -> None:
        if interrupts.is_requested:
            raise KeyboardInterrupt
        interrupts.is_requested = True
        print_note("stopping after the present step; press Ctrl-C again to stop at once")

    signal.signal(signal.SIGINT, note)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)


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
    from hpml_jobs.submit.send import RefusedError, submit_followup

    earlier = [state.job for state in selection.left_out.values() if state.outcome.active]
    awaited = [job for job in (*jobs.values(), *earlier) if job]
    if not (plan.has_followup and awaited):
        return None
    try:
        return submit_followup(plan, awaited)
    except RefusedError as error:
        raise HpmlError(
            f"the cells were submitted, but sbatch refused the follow-up job: {error}; "
            f"when they have finished, run hpml-jobs collect {plan.study.name}"
        ) from error


def _print_result(
    submission: "Submission", jobs: dict[str, str], followup: str | None, manner: Manner
) -> None:
    """Print the cells with their jobs and the next command, or JSON."""
    from hpml_jobs.submit.explain import cell_rows

    plan, left_out = submission.plan, submission.selection.left_out
    rows = cell_rows(plan, submission.selection, jobs)
    if manner.json:
        study = {"study": plan.study.name, "folder": str(plan.study.root)}
        print_json(study | {"cells": rows, "gpu_hours": submission.gpu_hours, "closing": followup})
        return
    console().print(sent_table(rows, all_cells=manner.all_cells))
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


def run_here(plan: "Plan", selection: "Selection", *, json: bool) -> None:
    """Run the selected cells one after another.

    Raises:
        HpmlError: a cell did not finish.
    """
    from hpml_jobs.status.states import study_status

    out = sys.stderr if json else sys.stdout
    total, left_out = len(selection.send), len(selection.left_out)
    left = f", {left_out} left out (finished, pending or running)" if left_out else ""
    print(f"study {plan.study.name}: {counted(total, 'cell')} to run{left}", file=out)
    ended = _run_cells(plan, selection, json=json)
    status = study_status(plan.study, with_checks=json)
    ended_states = [state for state in status.states if state.slug in ended]
    if json:
        study = {"study": plan.study.name, "folder": str(plan.study.root)}
        print_json(study | {"cells": ended_states})
    if plan.collect_after:
        from hpml_jobs.report.folder import write_all
        from hpml_jobs.report.report import ReportOptions, make_report

        options = ReportOptions(plan.study.read_cluster(), plan.study.commands())
        report = make_report(plan.study.name, status.snapshots, status.states, options)
        write_all(report, plan.study.report)
        print(f"the report is in {plan.study.report}", file=out)
    failed = sum(not state.outcome.finished for state in ended_states)
    if failed < max(1, total):
        print(next_commands(plan, watch=False), file=out)
    if failed:
        raise HpmlError(
            f"{failed} of {total} cells did not finish; see hpml-jobs logs {plan.study.name}"
        )


def _run_cells(plan: "Plan", selection: "Selection", *, json: bool) -> set[str]:
    """Run the cells with a progress line on stderr; return the names of those that ended."""
    from hpml_jobs.submit.local import run_all

    out = sys.stderr if json else sys.stdout
    total = len(selection.send)
    ended: set[str] = set()
    with Console(stderr=True).status("starting") as status:

        def show_progress(index: int, folder: CellFolder, progress: Progress) -> None:
            has_begun = bool(progress.epochs)
            epoch = f"epoch {progress.epoch} of {progress.epochs}" if has_begun else "starting"
            status.update(f"cell {index + 1} of {total}: {folder.slug}, {epoch}")

        def show_end(folder: CellFolder) -> None:
            ended.add(folder.slug)
            print(f"  {len(ended)}/{total}  {_cell_line(folder)}", flush=True, file=out)

        run_all(plan, selection.send, show_progress, show_end)
    return ended


def _cell_line(folder: CellFolder) -> str:
    """Return an ended cell in one line: its epoch time and accuracies, or why it has none."""
    end = folder.last_end()
    record = folder.read_record() if end and end.outcome.finished else None
    if record is not None and record.ranks:
        accuracies = {"training accuracy": record.accuracy, "test": record.ranks[0].test_accuracy}
        shown = (f"{name} {share:.3f}" for name, share in accuracies.items() if share is not None)
        return f"{folder.slug:44} epoch {record.epoch_s:8.3f} s   {', '.join(shown)}".rstrip()
    outcome = end.outcome.value if end else "failed"
    return f"{folder.slug:44} {outcome}: {end.reason if end else 'ended without an exit report'}"
