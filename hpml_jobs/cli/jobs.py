"""Commands cancel and resubmit."""

from typing import TYPE_CHECKING, Annotated

from typer import Option

from hpml_jobs.cli.console import print_json, print_note, totals
from hpml_jobs.cli.deliver import DeliveryOptions, deliver
from hpml_jobs.cli.hints import REPLACED, changed_code, not_replaced
from hpml_jobs.cli.options import (
    AllCells,
    DryRun,
    Json,
    Outputs,
    Pattern,
    StudyName,
    StudyPattern,
    Yes,
    select_study,
)
from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.core.text import counted

if TYPE_CHECKING:
    from hpml_jobs.status.states import StudyStatus
    from hpml_jobs.study.snapshot import CellState
    from hpml_jobs.submit.resubmit import Changes
    from hpml_jobs.submit.selection import Selection

DISTURBED = "disturbed"


def cancel(
    study: StudyName = None,
    pattern: Pattern = None,
    outputs: Outputs = None,
) -> None:
    """Cancel the jobs of a study, by job id. A job that several cells share ends for all of them.

    Without STUDY it cancels nothing: it says how many jobs the most recently submitted one has.

    Example: hpml-jobs cancel demo 'ddp-2*'
    """
    from hpml_jobs.status.cancel import active_jobs, cancel_jobs, queued_jobs
    from hpml_jobs.status.states import study_status

    selection = select_study(study, pattern, outputs)
    status = study_status(selection.study)
    all_states = status.states
    chosen = {state.slug for state in selection.chosen(all_states)}
    active = active_jobs(all_states)
    jobs = {job: cells for job, cells in active.items() if chosen & set(cells)}
    closing = []
    if selection.pattern is None:
        closing = queued_jobs(status.history.closing, selection.study.closing_name)
    ids = [*jobs, *closing]
    if ids and not selection.is_named:
        raise UsageError(
            f"nothing was cancelled: name the study ({selection.study.name} has "
            f"{counted(len(ids), 'such job')})"
        )
    cancel_jobs(ids)
    for job, cells in jobs.items():
        print(f"{job}: {', '.join(cells)}")
    for job in closing:
        print(f"{job}: the follow-up job")
    print(
        f"cancelled {counted(len(ids), 'job')}"
        if ids
        else "no job is pending or running"
    )
    for state in all_states:
        if state.slug in chosen and state.outcome.may_run and not state.job:
            raise HpmlError(
                f"{state.slug} was not cancelled: {state.reason}; repeat it later"
            )


def resubmit(
    study: StudyName = None,
    pattern: Pattern = None,
    outputs: Outputs = None,
    failed: Annotated[
        bool, Option("--failed", help="cells that failed or left an invalid record")
    ] = False,
    oom: Annotated[bool, Option("--oom", help="cells that ran out of memory")] = False,
    timeout: Annotated[
        bool, Option("--timeout", help="cells that reached the time limit")
    ] = False,
    missing: Annotated[
        bool, Option("--missing", help="cells without a job or a record")
    ] = False,
    cancelled: Annotated[
        bool, Option("--cancelled", help="cells that were cancelled")
    ] = False,
    lost: Annotated[
        bool,
        Option("--lost", help="cells that were lost to a node failure or preemption"),
    ] = False,
    disturbed: Annotated[
        bool,
        Option(
            "--disturbed",
            help="finished cells that were disturbed or have slow iterations, on a quiet machine",
        ),
    ] = False,
    minutes: Annotated[
        int | None, Option("--minutes", metavar="N", help="new time limit, minutes")
    ] = None,
    mem: Annotated[
        int | None, Option("--mem", metavar="GB", help="new memory per node, GB")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    all_cells: AllCells = False,
    json: Json = False,
) -> None:
    """Resubmit cells, selected by outcome or by name; ok cells only with --disturbed.

    Example: hpml-jobs resubmit demo --timeout --minutes 60
    """
    from hpml_jobs.submit.resubmit import Changes

    typed = {
        "failed": failed,
        "oom": oom,
        "timeout": timeout,
        "missing": missing,
        "cancelled": cancelled,
        "lost": lost,
        DISTURBED: disturbed,
    }
    kinds = [kind for kind, is_typed in typed.items() if is_typed]
    changes = Changes(minutes=minutes, mem_gb=mem)
    selection = select_study(study, pattern, outputs)
    if not kinds and selection.pattern is None:
        options = " ".join(f"--{kind}" for kind in typed)
        raise UsageError(f"specify what to resubmit: {options}, or a PATTERN")
    deliver(
        selection.study,
        lambda: _cells_again(selection, kinds, changes, json=json),
        DeliveryOptions(json, yes, all_cells, dry_run),
    )


def _cells_again(
    selected: StudyPattern,
    kinds: list[str],
    changes: "Changes",
    *,
    json: bool,
) -> "Selection | None":
    """Return the cells to submit again; None if there is none, which is printed."""
    from hpml_jobs.status.states import status_for_submission
    from hpml_jobs.submit.resubmit import files_of, select_again

    study = selected.study
    has_budget = study.read_cluster().gpu_hours_budget is not None
    status = status_for_submission(study, all_jobs=has_budget)
    in_question = selected.chosen(status.states)
    for state in in_question:
        if state.outcome is Outcome.UNKNOWN:
            print_note(f"left out: {state.slug}: {state.reason}")
    of_kinds = _of_kinds(kinds, in_question, status)
    chosen = not_replaced(of_kinds, changed_code(status.snapshots))
    if replaced := len(of_kinds) - len(chosen):
        print_note(f"left out: {counted(replaced, 'cell')} {REPLACED}")
    if not chosen:
        if json:
            print_json({"study": study.name, "cells": []})
        else:
            print(f"nothing to resubmit of {totals(in_question)}")
        return None
    files, faults = files_of(study, chosen, status.history)
    if not files:
        raise HpmlError(f"nothing was resubmitted: {'; '.join(faults)}")
    print_note(*(f"not resubmitted: {fault}" for fault in faults))
    return select_again(study, files, status, changes)


def _of_kinds(
    kinds: list[str], cells: "list[CellState]", status: "StudyStatus"
) -> "list[CellState]":
    """Return the cells of some kinds, without a kind all that are not measured and have no job."""
    from hpml_jobs.submit.resubmit import disturbed, resubmittable, with_outcomes

    chosen = resubmittable(cells)
    if kinds:
        chosen = with_outcomes(chosen, [kind for kind in kinds if kind != DISTURBED])
    if DISTURBED in kinds:
        chosen += disturbed(cells, status.snapshots)
    return chosen
