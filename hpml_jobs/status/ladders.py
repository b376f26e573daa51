"""Cells of a ladder that were not tried, because a smaller batch did not finish."""

from collections.abc import Mapping

import msgspec

from hpml_jobs.core.cell import CellFile
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.study.cell_state import CellState

_LADDER_GOES_ON = (
    *(Outcome.OK, Outcome.RUNNING, Outcome.UNKNOWN),
    *(Outcome.PENDING, Outcome.MISSING),
)
_MAY_BE_UNTRIED = (Outcome.PENDING, Outcome.MISSING, Outcome.CANCELLED)


def untried_cells(
    states: Mapping[str, CellState], files: Mapping[str, CellFile]
) -> dict[str, CellState]:
    """Return new states of the cells above the batch at which their ladder ended, by slug."""
    ladders: dict[str, list[tuple[int, str]]] = {}  # batch and slug of each cell
    for slug, file in files.items():
        if file.ladder:
            ladders.setdefault(file.cell.ladder, []).append((file.cell.batch, slug))
    untried: dict[str, CellState] = {}
    for cells in ladders.values():
        last: CellState | None = None
        last_batch = 0
        for batch, slug in sorted(cells):
            state = states[slug]
            if last is not None:
                if _is_untried(state, last):
                    untried[state.slug] = _untried(state, last, last_batch)
            elif state.outcome not in _LADDER_GOES_ON:
                last, last_batch = state, batch
    return untried


def _is_untried(state: CellState, last: CellState) -> bool:
    """Return whether a cell above the ladder's `last` one was left out.

    A cell of another job was resubmitted by hand and has its own chance.
    """
    return not state.recorded and state.outcome in _MAY_BE_UNTRIED and state.job == last.job


def _untried(state: CellState, last: CellState, last_batch: int) -> CellState:
    is_too_large = last.outcome is Outcome.OOM
    if is_too_large:
        reason = f"not tried: batch {last_batch} ran out of memory"
    else:
        reason = f"the ladder ended at batch {last_batch} ({last.outcome.value})"
    return msgspec.structs.replace(
        state,
        outcome=Outcome.OOM if is_too_large else Outcome.MISSING,
        reason=reason,
        untried=is_too_large,
        who="",
        starts=None,
        queued_s=None,
        elapsed_s=None,
    )
