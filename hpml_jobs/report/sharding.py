"""Full table of memory, messages and time of strategies that shard, beside the others."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from statistics import median
from typing import Annotated, NamedTuple

from hpml_jobs.checks.result import Affected
from hpml_jobs.core.measurements import CollectiveKind
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Device, Sharded, Strategy
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.builder import Number, Shown, TableText, columns_of, line_table
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import gigabytes, megabytes, percent, ratio, seconds
from hpml_jobs.report.frame.rows import Row
from hpml_jobs.report.frame.table import Table

CAPTION = (
    "Peak memory: the most of any rank in the timed epoch, median over the runs (GB = 1e9 bytes). "
    "Of ddp: divided by that of ddp at the same place, batch and training path. Kept: elements "
    "that the rank with the most keeps, in % of the model (fsdp: parameters and their optimizer "
    "state; zero1: optimizer state). Optimizer state: of the rank with the most, after training. "
    "MB per iteration: bytes of all messages of a kind that one rank passes on in the instrumented "
    "epoch (1e6 bytes). Exposed: seconds of communication there that no computation hides."
)
WHOLE_PROCESS = (
    "with device=cpu memory is that of the whole process, with Python and its libraries: compare "
    "large models only"
)

KINDS = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.BROADCAST,
)


class Site(NamedTuple):
    """GPUs, nodes, batch per GPU and training path, at which strategies are compared."""

    gpus: int
    nodes: int
    batch: int
    path: str


SENT = "MB per iteration"


class ShardingLine(NamedTuple):
    """Memory, messages and time of a row: bytes, seconds, ratios to ddp, shares of 1."""

    peak_memory_bytes: Annotated[Number, Shown("GB", gigabytes, "peak memory")]
    peak_memory_of_ddp: Annotated[Number, Shown("of ddp", ratio, "peak memory")]
    kept: Annotated[Number, Shown("kept, %", percent)]
    optimizer_state_bytes: Annotated[Number, Shown("optimizer state, MB", megabytes)]
    all_reduce_bytes_per_iteration: Annotated[Number, Shown("all-reduce", megabytes, SENT)]
    reduce_scatter_bytes_per_iteration: Annotated[Number, Shown("reduce-scatter", megabytes, SENT)]
    all_gather_bytes_per_iteration: Annotated[Number, Shown("all-gather", megabytes, SENT)]
    broadcast_bytes_per_iteration: Annotated[Number, Shown("broadcast", megabytes, SENT)]
    epoch_s: Annotated[float, Shown("s", seconds, "epoch")]
    epoch_of_ddp: Annotated[Number, Shown("of ddp", ratio, "epoch")]
    comm_exposed_s: Annotated[Number, Shown("exposed, s", seconds)]


def _lines(group: ConditionGroup, rows: Iterable[Row]) -> Iterator[tuple[Row, ShardingLine]]:
    """Yield the line of each row; numbers are medians over its runs."""
    at_site = {
        _site(row): row
        for row in group.timed
        if row.strategy is Strategy.DDP and row.setup.is_plain
    }
    for row in rows:
        records, ddp = group.records(row), at_site.get(_site(row))
        peak = median_of(records, peak_bytes)
        peak_of_ddp = median_of(group.records(ddp), peak_bytes) if ddp else None
        sent = {
            f"{kind}_bytes_per_iteration": median_of(records, partial(_sent_bytes, kind=kind))
            for kind in KINDS
        }
        yield (
            row,
            ShardingLine(
                peak_memory_bytes=peak,
                peak_memory_of_ddp=over(peak, peak_of_ddp),
                kept=median_of(records, _kept_share),
                optimizer_state_bytes=median_of(records, _state_bytes),
                epoch_s=row.figures.epoch_s,
                epoch_of_ddp=over(row.figures.epoch_s, ddp.figures.epoch_s if ddp else None),
                comm_exposed_s=row.figures.comm_exposed_s,
                **sent,
            ),
        )


def median_of(records: Iterable[Record], number: Callable[[Record], Number]) -> Number:
    """Return the median over the runs that have a number; None if none has."""
    known = [value for value in map(number, records) if value is not None]
    return median(known) if known else None


def over(value: Number, of: Number) -> Number:
    """Return the ratio of two numbers; None where one is not known."""
    return value / of if value is not None and of else None


def sharding(group: ConditionGroup) -> Table | None:
    """Return strategies that shard and the others at the same sites; None without one of them."""
    sites = {_site(row) for row in group.timed if _shards(row)}
    rows = [row for row in group.timed if _site(row) in sites]
    if not rows or group.imported:
        return None
    text = TableText(
        "sharding",
        "Sharding: memory, messages and time",
        "timed and instrumented epoch",
        (CAPTION, captions.runs(rows)),
        affected=Affected.TIME,
    )
    notes = [WHOLE_PROCESS] if group.device is Device.CPU else []
    lines = list(_lines(group, rows))
    return line_table(group, text, lines, columns_of(ShardingLine), notes)


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
