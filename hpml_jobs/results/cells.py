"""All cells of a study: the place of each, and its record or the reason why it has none."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from hpml_jobs.core.cell import Cell, Outcome
from hpml_jobs.core.record import Record
from hpml_jobs.core.secrets import hide_secrets, shown_value
from hpml_jobs.core.strategies import BASELINE, Strategy, is_baseline
from hpml_jobs.core.text import NaturalKey, natural_key
from hpml_jobs.core.value import Value
from hpml_jobs.results.statistics import without_unlike
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.study.files import is_name
from hpml_jobs.study.snapshot import AttemptSnapshot, CellState, FolderSnapshot


class Setup(NamedTuple):
    """A row of a table; `treatment` is what was done to its cells, in words, empty if nothing.

    `path` is the part of it that a cell on one GPU has too, the training path: rows are compared
    within their path.
    """

    gpus: int
    nodes: int
    strategy: Strategy
    treatment: str = ""
    path: str = ""

    @property
    def is_baseline(self) -> bool:
        """Whether others of its path are compared with it: the plain loop on one GPU."""
        return is_baseline(self.strategy, self.treatment, self.path)

    @property
    def is_plain(self) -> bool:
        """Whether nothing but its training path was done to it."""
        return self.treatment == self.path

    @property
    def baseline(self) -> "Setup":
        """The setup that all of its training path are compared with."""
        return Setup(1, 1, BASELINE, self.path, self.path)

    @property
    def order(self) -> tuple[int, int, int, NaturalKey]:
        """The order of rows: GPUs, nodes, strategy (`single` first), treatment (none first)."""
        strategy = list(Strategy).index(self.strategy)
        return self.gpus, self.nodes, strategy, natural_key(self.treatment)


class Place(NamedTuple):
    """Position of a value in the tables: a setup (row) and a batch (column)."""

    setup: Setup
    batch_per_gpu: int

    @classmethod
    def of(cls, cell: Cell) -> "Place":
        """Return the place that a cell measures."""
        setup = Setup(
            cell.gpus, cell.nodes, cell.strategy, cell.treatment, cell.path.label
        )
        return cls(setup, cell.batch)


class CellResult(Value, frozen=True, kw_only=True):
    """One cell of a study.

    `record` is a valid one (ok or oom); `reason` says why there is no number; `cell` is None where
    neither cell.json nor a record can be read. `is_active`: it is pending or running, maybe again.
    `iterations` is where arrays by iteration lie beside a record, `attempt` the folder of the
    attempt that measured it, `latest` its latest attempt.
    """

    slug: str
    cell: Cell | None
    record: Record | None = None
    outcome: Outcome
    reason: str = ""
    warning: str = ""
    is_active: bool = False
    iterations: Path | None = None
    attempt: Path | None = None
    latest: AttemptSnapshot | None = None

    @property
    def measured(self) -> bool:
        """Whether the cell has numbers."""
        return self.record is not None and self.outcome is Outcome.OK

    @property
    def place(self) -> Place | None:
        """The place that it measures; None where its settings are not known."""
        return Place.of(self.cell) if self.cell else None


def place_order(result: CellResult) -> tuple[object, ...]:
    """Return the order of cells: row, batch, seed, repeat; cells without settings come first."""
    cell = result.cell
    if cell is None:
        return (result.slug,)
    setup, batch = Place.of(cell)
    return setup.order, batch, cell.seed, cell.repeat, result.slug


def cell_results(
    snapshots: Iterable[FolderSnapshot], states: Mapping[str, CellState]
) -> list[CellResult]:
    """Return every cell of a study, by slug; no cell is left out.

    They are what every table, page, file and printed command is made from: secrets are `***`.
    """
    by_slug = sorted(snapshots, key=lambda snapshot: snapshot.folder.slug)
    return [_public(_result(s, states.get(s.folder.slug))) for s in by_slug]


def _result(snapshot: FolderSnapshot, state: CellState | None) -> CellResult:
    folder = snapshot.folder
    file = snapshot.file
    record = snapshot.record and without_unlike(snapshot.record)
    cell_fault = _short(folder, snapshot.file_fault)
    warning = state.warning if state else ""
    result = CellResult(
        slug=folder.slug,
        cell=file.cell if file else None,
        outcome=_without_record(state),
        reason=_joined(cell_fault, _why(state)),
        warning=warning,
        latest=snapshot.latest,
        is_active=state is not None and state.outcome.may_run,
    )
    if record is not None:
        attempt = record.attempt.id
        return msgspec.structs.replace(
            result,
            cell=record.cell,
            record=record,
            outcome=record.outcome,
            reason="" if record.outcome is Outcome.OK else _out_of_memory(record),
            warning=_joined(warning, cell_fault),
            iterations=(snapshot.source or folder).iterations,
            attempt=folder.attempt(attempt).root if is_name(attempt) else None,
        )
    if not snapshot.record_fault:
        return result
    reason = _joined(f"invalid: {_short(folder, snapshot.record_fault)}", cell_fault)
    if state is not None and state.outcome.active:
        reason = _joined(reason, f"now {_why(state)}")
    return msgspec.structs.replace(result, outcome=Outcome.INVALID, reason=reason)


def _without_record(state: CellState | None) -> Outcome:
    if state is None:
        return Outcome.UNKNOWN
    return Outcome.MISSING if state.outcome is Outcome.OK else state.outcome


def _why(state: CellState | None) -> str:
    if state is None:
        return "no record, and nothing is known of a job for it"
    if state.outcome is Outcome.OK:
        return _joined("no record", state.reason)
    outcome = state.outcome.value
    reason = " ".join(state.reason.split())
    # Avoids a doubled word; no fact is read from the reason.
    if not reason or reason.lower().startswith(outcome):
        return reason or outcome
    return f"{outcome}: {reason}"


def _out_of_memory(record: Record) -> str:
    lines = (record.reason or "").strip().splitlines()
    if not lines:
        return "out of memory"
    if lines[0].lower().startswith(("oom", "out of memory")):
        return lines[0]
    return f"out of memory: {lines[0]}"


def _short(folder: CellFolder, fault: str) -> str:
    """Return a message on one line, with paths relative to the cell's folder."""
    return " ".join(fault.replace(f"{folder.root}/", "").split())


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _public(result: CellResult) -> CellResult:
    """Return a cell for tables, files and printed commands: without secrets."""
    record = result.record
    if record is not None:
        record = msgspec.structs.replace(record, cell=_public_cell(record.cell))
    return msgspec.structs.replace(
        result,
        cell=result.cell and _public_cell(result.cell),
        record=record,
        reason=hide_secrets(result.reason),
    )


def _public_cell(cell: Cell) -> Cell:
    script, args = cell.script, cell.workload.args
    shown = {name: shown_value(name, arg) for name, arg in args.items()}
    if shown != args:
        workload = msgspec.structs.replace(cell.workload, args=shown)
        cell = msgspec.structs.replace(cell, workload=workload)
    if script is None:
        return cell
    script = msgspec.structs.replace(script, args=hide_secrets(script.args))
    return msgspec.structs.replace(cell, script=script)
