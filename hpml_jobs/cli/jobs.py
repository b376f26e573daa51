"""Commands that act on a study's jobs: cancel, resubmit."""

from typing import TYPE_CHECKING, Annotated

import typer

from hpml_jobs.cli.console import print_json
from hpml_jobs.cli.deliver import deliver
from hpml_jobs.cli.options import Json, Outputs, Pattern, StudyName, StudySelection, select_study
from hpml_jobs.core.text import counted
from hpml_jobs.errors import UsageError

if TYPE_CHECKING:
    from hpml_jobs.study.cell_state import CellState
    from hpml_jobs.submit.resubmit import Changes

Failed = Annotated[bool, typer.Option("--failed", help="failed, or left an invalid record")]
Oom = Annotated[bool, typer.Option("--oom", help="ran out of memory")]
Timeout = Annotated[bool, typer.Option("--timeout", help="ended by the time limit")]
Missing = Annotated[bool, typer.Option("--missing", help="without a job or a record")]
Cancelled = Annotated[bool, typer.Option("--cancelled", help="cancelled")]
Lost = Annotated[bool, typer.Option("--lost", help="lost by a failed node or a preemption")]


def cancel(
    study: StudyName = None, pattern: Pattern = None, outputs: Outputs = None, json: Json = False
) -> None:
    """End the jobs of a study, by id; nobody else's. Example: hpml-jobs cancel digits-rig 'ddp-4*'

    A job that several cells share ends for all of them.
    """
    from hpml_jobs.status.cancel import cancel_jobs, jobs_of
    from hpml_jobs.status.states import cell_states

    meant = select_study(study, pattern, outputs)
    now = cell_states(meant.study)
    chosen = {state.slug for state in meant.chosen(now)}
    jobs = jobs_of(now)
    ended = {job: cells for job, cells in jobs.items() if chosen & set(cells)}
    closing = [] if pattern or chosen < {s.slug for s in now} else _closing_jobs(meant)
    cancel_jobs([*ended, *closing])
    if json:
        print_json({"study": meant.study.name, "jobs": ended, "closing": closing})
        return
    for job, cells in ended.items():
        print(f"{job}: {', '.join(cells)}")
    cells_ended = sum(len(cells) for cells in ended.values())
    after = f", and the job that was to come after ({', '.join(closing)})" if closing else ""
    what = f"{counted(len(ended), 'job')} of {counted(cells_ended, 'cell')}{after}"
    print(f"cancelled {what}" if ended or closing else "no cell is waiting or running")


def _closing_jobs(meant: StudySelection) -> list[str]:
    """The closing jobs that still wait or run."""
    from hpml_jobs.status.cancel import still_there

    return still_there(meant.study.history().closing)


def resubmit(
    study: StudyName = None,
    pattern: Pattern = None,
    outputs: Outputs = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="failed, or left an invalid record")
    ] = False,
    oom: Annotated[bool, typer.Option("--oom", help="ran out of memory")] = False,
    timeout: Annotated[bool, typer.Option("--timeout", help="ended by the time limit")] = False,
    missing: Annotated[bool, typer.Option("--missing", help="without a job or a record")] = False,
    cancelled: Annotated[bool, typer.Option("--cancelled", help="cancelled")] = False,
    lost: Annotated[
        bool, typer.Option("--lost", help="lost by a failed node or preemption")
    ] = False,
    minutes: Annotated[int | None, typer.Option("--minutes", help="another time limit")] = None,
    mem: Annotated[int | None, typer.Option("--mem", help="GB of memory on each node")] = None,
    retries: Annotated[
        int | None,
        typer.Option("--retries", help="with --lost: so often at most, away from failed nodes"),
    ] = None,
    json: Json = False,
) -> None:
    """Send cells again, by what became of them or by name; measured ones are left alone.

    Example: hpml-jobs resubmit digits-rig --timeout --minutes 60
    """
    from hpml_jobs.status.states import cell_states
    from hpml_jobs.submit.resubmit import Changes

    asked = {
        "failed": failed,
        "oom": oom,
        "timeout": timeout,
        "missing": missing,
        "cancelled": cancelled,
        "lost": lost,
    }
    kinds = [kind for kind, wanted in asked.items() if wanted]
    changes = Changes(minutes=minutes, mem_gb=mem)
    if retries is not None and kinds != ["lost"]:
        raise UsageError("--retries goes with --lost alone")
    meant = select_study(study, pattern, outputs)
    if not kinds and meant.pattern is None and (there := _kinds_there(cell_states(meant.study))):
        raise UsageError(f"resubmit what? {there}, or a PATTERN")
    with meant.study.submitting():
        _send_again(meant, kinds, changes, retries, json=json)


def _send_again(
    meant: StudySelection, kinds: list[str], changes: "Changes", retries: int | None, *, json: bool
) -> None:
    from hpml_jobs.status.states import states_for_submission
    from hpml_jobs.submit.resubmit import (
        of_kinds,
        plan_again,
        sendable,
        within_retries,
    )
    from hpml_jobs.submit.selection import Selection

    chosen = sendable(meant.chosen(states_for_submission(meant.study)))
    chosen = of_kinds(chosen, kinds) if kinds else chosen
    exclude: tuple[str, ...] = ()
    if retries is not None:
        chosen, exclude = within_retries(chosen, meant.study.history(), retries)
    if not chosen:
        if json:
            print_json({"study": meant.study.name, "cells": []})
        else:
            print("nothing sent: every cell meant is measured, under way, or stands otherwise")
        return
    plan = plan_again(meant.study, chosen, changes)
    plan = plan._replace(exclude=exclude, retries=retries or 0, retry=retries is not None)
    because = {state.slug: f"{state.outcome.value} before" for state in chosen}
    deliver(plan, Selection(plan.cells, because, {}), json=json)


def _kinds_there(now: "list[CellState]") -> str:
    """The options that would send something, with how much."""
    from hpml_jobs.submit.resubmit import KINDS, of_kinds, sendable

    counts = {kind: len(of_kinds(sendable(now), [kind])) for kind in KINDS}
    return " ".join(f"--{kind} ({count})" for kind, count in counts.items() if count)
