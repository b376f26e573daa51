"""Selection of the cells to submit: those without a record and without an active job."""

from typing import NamedTuple

import msgspec

from hpml_jobs.core.record import Record
from hpml_jobs.plan.plan import Plan, PlannedCell
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.status.states import StudyStatus, status_for_submission
from hpml_jobs.study.cell_state import CellState


class Selection(NamedTuple):
    """Cells to submit with the reason, and cells left out with their state; keys are slugs.

    `status` is the study's status that the selection was made from.
    """

    send: list[PlannedCell]
    reasons: dict[str, str]
    left_out: dict[str, CellState]
    status: StudyStatus


def select(plan: Plan) -> Selection:
    """Compare a plan with its study; an oom record counts as finished.

    Raises:
        HpmlError: squeue does not say which cells have a job.
    """
    has_budget = plan.cluster.gpu_hours_budget is not None  # it counts all jobs of the study
    status = status_for_submission(plan.study, all_jobs=has_budget)
    states = {state.slug: state for state in status.states}
    records = {snapshot.folder.slug: snapshot.record for snapshot in status.snapshots}
    send: list[PlannedCell] = []
    reasons: dict[str, str] = {}
    left_out: dict[str, CellState] = {}
    for planned in plan.cells:
        slug = planned.cell.slug
        state = states.get(slug)
        if state is None:
            reasons[slug] = "new"
            send.append(planned)
        elif state.outcome.active or (state.recorded and not plan.rerun):
            left_out[slug] = state
        else:
            reasons[slug] = "again (rerun=true)" if state.recorded else _reason(state)
            send.append(superseding(planned, records[slug]) if state.recorded else planned)
    return Selection(send, reasons, left_out, status)


def superseding(planned: PlannedCell, record: Record | None) -> PlannedCell:
    """Return the cell with permission to replace `record`, which it has now."""
    attempt = record.attempt.id if record else None
    return planned._replace(file=msgspec.structs.replace(planned.file, supersedes=attempt))


def _reason(state: CellState) -> str:
    if state.outcome is Outcome.MISSING and state.job is None:
        return "not submitted yet"
    return f"{state.outcome.value} before"
