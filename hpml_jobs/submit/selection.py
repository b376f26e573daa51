"""Which cells of a plan are sent: those with neither a record nor a job under way."""

from typing import NamedTuple

import msgspec

from hpml_jobs.plan.plan import Plan, PlannedCell
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.status.states import states_for_submission
from hpml_jobs.study.cell_state import CellState


class Selection(NamedTuple):
    """Cells to send with why, and cells left out with why; keys are slugs."""

    send: list[PlannedCell]
    because: dict[str, str]
    left_out: dict[str, CellState]


def select(plan: Plan) -> Selection:
    """Compare the plan with what is in the study; an oom record counts as finished."""
    known = {state.slug: state for state in states_for_submission(plan.study)}
    send: list[PlannedCell] = []
    because: dict[str, str] = {}
    left_out: dict[str, CellState] = {}
    for one in plan.cells:
        slug = one.cell.slug
        state = known.get(slug)
        if state is None:
            because[slug] = "new"
            send.append(one)
        elif state.outcome.active or (state.recorded and not plan.rerun):
            left_out[slug] = state
        else:
            because[slug] = "again (rerun=true)" if state.recorded else _before(state)
            send.append(superseding(plan, one) if state.recorded else one)
    return Selection(send, because, left_out)


def _before(state: CellState) -> str:
    if state.outcome is Outcome.MISSING and state.job is None:
        return "not sent yet"
    return f"{state.outcome.value} before"


def superseding(plan: Plan, one: PlannedCell) -> PlannedCell:
    """The cell with leave to replace the record that is there now."""
    record = plan.study.cell(one.cell.slug).read_record()
    old = record.attempt.id if record else None
    return one._replace(file=msgspec.structs.replace(one.file, supersedes=old))
