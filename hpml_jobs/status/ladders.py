"""Cells of a ladder that were not tried, because a smaller batch of it did not go well."""

from collections.abc import Mapping

import msgspec

from hpml_jobs.core.cell import Cell, CellFile
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.study.cell_state import CellState

_NO_END = (Outcome.OK, Outcome.RUNNING, Outcome.UNKNOWN, Outcome.PENDING, Outcome.MISSING)
_NOT_TRIED = (Outcome.PENDING, Outcome.MISSING, Outcome.CANCELLED)


def ladders(states: Mapping[str, CellState], files: Mapping[str, CellFile]) -> dict[str, CellState]:
    """The states that follow from a smaller batch of the same ladder; of the others none."""
    groups: dict[str, list[Cell]] = {}
    for file in files.values():
        if file.ladder:
            groups.setdefault(file.cell.ladder, []).append(file.cell)
    changed: dict[str, CellState] = {}
    for rungs in groups.values():
        ended: CellState | None = None
        at = 0
        for rung in sorted(rungs, key=lambda cell: cell.batch):
            state = states[rung.slug]
            if ended is not None:
                follows = _after(state, ended, at)
                changed |= {state.slug: follows} if follows else {}
            elif state.outcome not in _NO_END:
                ended, at = state, rung.batch
    return changed


def _after(state: CellState, ended: CellState, batch: int) -> CellState | None:
    """A rung above the one that the ladder ended at; None where it was tried all the same.

    A rung of another job was sent again by somebody, and has its own chance.
    """
    if state.recorded or state.outcome not in _NOT_TRIED or state.job != ended.job:
        return None
    untried = ended.outcome is Outcome.OOM
    if untried:
        outcome, reason = Outcome.OOM, f"not tried: batch {batch} ran out of memory"
    else:
        outcome, reason = Outcome.MISSING, f"the ladder ended at batch {batch}"
        reason += f" ({ended.outcome.value})"
    return msgspec.structs.replace(
        state,
        outcome=outcome,
        reason=reason,
        untried=untried,
        who="",
        starts=None,
        queued_s=None,
        elapsed_s=None,
    )
