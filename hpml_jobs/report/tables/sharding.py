"""Full table of memory, messages and time of strategies that shard, beside the others."""

from collections.abc import Callable, Iterator
from statistics import median
from typing import NamedTuple

from hpml_jobs.checks.result import Affected
from hpml_jobs.core.measurements import CollectiveKind
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Device, Sharded, Strategy
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.rows import Row
from hpml_jobs.report.table import Table
from hpml_jobs.report.tables.builder import Column, Columns, TableText, column, row_table
from hpml_jobs.report.text import captions
from hpml_jobs.report.text.numbers import percent, ratio, seconds, significant

CAPTION = (
    "Peak memory: the most of any rank in E1, median over the runs (GB = 1e9 bytes). Of ddp: "
    "divided by that of ddp at the same place, batch and training path. Kept: elements that the "
    "rank with the most keeps, in % of the model (fsdp: parameters and their optimizer state; "
    "zero1: optimizer state). Optimizer state: of the rank with the most, after training. MB per "
    "iteration: bytes of all messages of a kind that one rank passes on in E2 (1e6 bytes). "
    "Exposed: communication that no computation hides, seconds of E2."
)
WHOLE_PROCESS = (
    "with device=cpu memory is that of the whole process, with Python and its libraries: compare "
    "large models only"
)

KINDS = (
    (CollectiveKind.ALL_REDUCE, "all-reduce"),
    (CollectiveKind.REDUCE_SCATTER, "reduce-scatter"),
    (CollectiveKind.ALL_GATHER, "all-gather"),
    (CollectiveKind.BROADCAST, "broadcast"),
)


class Site(NamedTuple):
    """GPUs, nodes, batch per GPU and training path, at which strategies are compared."""

    gpus: int
    nodes: int
    batch: int
    path: str


class _Numbers:
    """The numbers of a group's rows, from the records of their runs."""

    def __init__(self, group: ConditionGroup) -> None:
        self._group = group
        self._ddp = {
            _site(row): row
            for row in group.timed
            if row.strategy is Strategy.DDP and row.setup.is_plain
        }

    def memory_bytes(self, row: Row) -> float | None:
        """Return the peak memory of the rank with the most; None if a rank did not report it."""
        return self._median(row, peak_bytes)

    def memory_of_ddp(self, row: Row) -> float | None:
        """Return the same divided by ddp's."""
        return self._of_ddp(row, self.memory_bytes)

    def kept(self, row: Row) -> float | None:
        """Return the largest share of the model that a rank keeps for itself."""
        return self._median(row, _kept_share)

    def state_bytes(self, row: Row) -> float | None:
        """Return the bytes of the optimizer's state on the rank with the most."""
        return self._median(row, _state_bytes)

    def sent_bytes(self, row: Row, kind: CollectiveKind) -> float | None:
        """Return the bytes of all messages of a kind per iteration of one rank."""
        return self._median(row, lambda record: _sent_bytes(record, kind))

    def epoch_of_ddp(self, row: Row) -> float | None:
        """Return the timed epoch divided by ddp's."""
        return self._of_ddp(row, _epoch_s)

    def _of_ddp(self, row: Row, number: Callable[[Row], float | None]) -> float | None:
        ddp = self._ddp.get(_site(row))
        ours, theirs = number(row), number(ddp) if ddp else None
        return ours / theirs if ours is not None and theirs else None

    def _median(self, row: Row, number: Callable[[Record], float | None]) -> float | None:
        values = [number(record) for record in self._group.records(row)]
        measured = [value for value in values if value is not None]
        return median(measured) if measured else None


def sharding(group: ConditionGroup) -> Table | None:
    """Return strategies that shard and the others at the same sites; None without one of them."""
    sites = {_site(row) for row in group.timed if _shards(row)}
    rows = [row for row in group.timed if _site(row) in sites]
    if not rows or group.imported:
        return None
    text = TableText(
        "sharding",
        "Sharding: memory, messages and time",
        "E1, E2",
        (CAPTION, captions.runs(rows)),
        affected=Affected.TIME,
    )
    notes = [WHOLE_PROCESS] if group.device is Device.CPU else []
    return row_table(group, text, rows, tuple(_heads(_Numbers(group))), notes)


def _heads(numbers: _Numbers) -> Iterator[Columns[Row]]:
    yield Columns(
        "peak memory",
        (
            column("peak_memory_bytes", "GB", numbers.memory_bytes, gigabytes),
            column("peak_memory_of_ddp", "of ddp", numbers.memory_of_ddp, ratio),
        ),
    )
    yield Columns("kept, %", (column("kept", "", numbers.kept, percent),))
    yield Columns(
        "optimizer state, MB",
        (column("optimizer_state_bytes", "", numbers.state_bytes, megabytes),),
    )
    yield Columns("MB per iteration", tuple(_sent(numbers, *kind) for kind in KINDS))
    yield Columns(
        "epoch",
        (
            column("epoch_s", "s", _epoch_s, seconds),
            column("epoch_of_ddp", "of ddp", numbers.epoch_of_ddp, ratio),
        ),
    )
    yield Columns("exposed, s", (column("comm_exposed_s", "", _exposed_s, seconds),))


def _sent(numbers: _Numbers, kind: CollectiveKind, words: str) -> Column[Row]:
    return column(
        f"{kind}_bytes_per_iteration", words, lambda row: numbers.sent_bytes(row, kind), megabytes
    )


def _site(row: Row) -> Site:
    return Site(row.gpus, row.nodes, row.batch_per_gpu, row.path)


def _shards(row: Row) -> bool:
    return row.strategy.traffic.shards is not Sharded.NOTHING


def peak_bytes(record: Record) -> float | None:
    """Return the peak memory of the rank with the most; None if a rank did not report it."""
    peaks = [rank.peak_memory_bytes for rank in record.ranks]
    known = [peak for peak in peaks if peak is not None]
    return max(known) if known and len(known) == len(peaks) else None


def _state_bytes(record: Record) -> float | None:
    states = [rank.optimizer_state_bytes for rank in record.ranks]
    known = [state for state in states if state is not None]
    return max(known, default=None) if len(known) == len(states) else None


def _kept_share(record: Record) -> float | None:
    held = [rank.held_elements for rank in record.ranks if rank.held_elements is not None]
    return max(held) / record.model.parameters if held and record.model else None


def _sent_bytes(record: Record, kind: CollectiveKind) -> float | None:
    communication = record.communication
    if communication is None or not record.iterations:
        return None
    total = sum(m.bytes * m.count for m in communication.messages if m.kind == kind)
    return total / record.iterations or None


def _epoch_s(row: Row) -> float | None:
    return row.timing.epoch_s if row.timing else None


def _exposed_s(row: Row) -> float | None:
    return row.figures.comm_exposed_s


def gigabytes(value: float) -> str:
    """Return bytes as GB (1e9 bytes) with three digits."""
    return significant(value / 1e9, 3)


def megabytes(value: float) -> str:
    """Return bytes as MB (1e6 bytes) with three digits."""
    return significant(value / 1e6, 3)
