"""What lies in a study's folder: every cell, with its record or with the reason there is none."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from hpml_jobs.core.cell import Cell, CellFile
from hpml_jobs.core.record import Record
from hpml_jobs.core.validation import InvalidRecordError
from hpml_jobs.core.value import Value
from hpml_jobs.errors import HpmlError
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.study.cell_state import CellState
from hpml_jobs.study.study import Study


class CellResult(Value, frozen=True, kw_only=True):
    """One cell of a study.

    `record` is a valid one (ok or oom); `reason` says why there is no number; `cell` is None where
    neither cell.json nor a record can be read. `ladder`: it is one of growing batches.
    `iterations` is where arrays by iteration lie beside a record.
    """

    slug: str
    cell: Cell | None
    record: Record | None = None
    outcome: Outcome
    reason: str = ""
    warning: str = ""
    ladder: bool = False
    iterations: Path | None = None

    @property
    def measured(self) -> bool:
        """Whether there are numbers."""
        return self.record is not None and self.outcome is Outcome.OK


def read(study: Study, states: Mapping[str, CellState]) -> list[CellResult]:
    """Every cell that has a folder or a state, by slug; no cell is left out."""
    folders = {folder.slug: folder for folder in study.cells()}
    gone = (_gone(states[slug]) for slug in states if slug not in folders)
    here = (_look(folder, states.get(folder.slug)) for folder in folders.values())
    return sorted([*here, *gone], key=lambda found: found.slug)


def _gone(state: CellState) -> CellResult:
    reason = f"its folder is gone ({_why(state)})"
    return CellResult(slug=state.slug, cell=None, outcome=_without_record(state), reason=reason)


def _look(folder: CellFolder, state: CellState | None) -> CellResult:
    file, broken = _read_cell(folder)
    found = _judged(folder, state, file.cell if file else None, broken)
    return msgspec.structs.replace(found, ladder=True) if file and file.ladder else found


def _judged(
    folder: CellFolder, state: CellState | None, cell: Cell | None, broken: str
) -> CellResult:
    warning = state.warning if state else ""
    try:
        record = folder.read_record()
    except InvalidRecordError as fault:
        reason = _joined(f"invalid: {_short(folder, fault)}", broken)
        if state is not None and state.outcome.active:
            reason = _joined(reason, f"now {_why(state)}")
        return CellResult(
            slug=folder.slug, cell=cell, outcome=Outcome.INVALID, reason=reason, warning=warning
        )
    if record is None:
        reason = _joined(broken, _why(state))
        outcome = _without_record(state)
        return CellResult(
            slug=folder.slug, cell=cell, outcome=outcome, reason=reason, warning=warning
        )
    return CellResult(
        slug=folder.slug,
        cell=record.cell,
        record=record,
        outcome=record.outcome,
        reason="" if record.outcome is Outcome.OK else _out_of_memory(record),
        warning=_joined(warning, broken),
        iterations=folder.iterations,
    )


def _read_cell(folder: CellFolder) -> tuple[CellFile | None, str]:
    try:
        file = folder.read()
    except HpmlError as fault:
        return None, _short(folder, fault)
    if file.cell.slug != folder.slug:
        return None, f"its cell.json is the cell {file.cell.slug}"
    return file, ""


def _without_record(state: CellState | None) -> Outcome:
    if state is None:
        return Outcome.UNKNOWN
    return Outcome.MISSING if state.outcome is Outcome.OK else state.outcome


def _why(state: CellState | None) -> str:
    if state is None:
        return "no record, and nothing is known of a job for it"
    if state.outcome is Outcome.OK:
        return _joined("no record", state.reason)
    outcome, reason = state.outcome.value, " ".join(state.reason.split())
    # This only spares a doubled word: no fact is read from the reason.
    if not reason or reason.lower().startswith(outcome):
        return reason or outcome
    return f"{outcome}: {reason}"


def _out_of_memory(record: Record) -> str:
    lines = (record.reason or "").strip().splitlines()
    if not lines or lines[0].lower().startswith(("oom", "out of memory")):
        return lines[0] if lines else "out of memory"
    return f"out of memory: {lines[0]}"


def _short(folder: CellFolder, fault: Exception) -> str:
    """A fault's message on one line, paths as seen from the cell's folder."""
    return " ".join(str(fault).replace(f"{folder.root}/", "").split())


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
