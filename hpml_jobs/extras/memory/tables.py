"""Tables of memory: training paths and strategies that shard, the largest batch that fits."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, groupby
from statistics import median
from typing import Annotated, NamedTuple

import msgspec

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.measurements import CollectiveKind, Message
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Device, Sharded, Strategy
from hpml_jobs.core.text import natural_key
from hpml_jobs.core.training_path import Precision, TrainingPath
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.builder import (
    GroupContext,
    Number,
    Shown,
    TableText,
    columns_of,
    filled,
    item_table,
    line_table,
)
from hpml_jobs.report.frame.numbers import (
    count,
    gigabytes,
    loss,
    percent,
    ratio,
    seconds,
    three_digits,
)
from hpml_jobs.report.frame.table import Table
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row

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


def _median_of(records: Iterable[Record], number: Callable[[Record], Number]) -> Number:
    """Return the median over the runs that have a number; None if none has."""
    numbers = [value for value in map(number, records) if value is not None]
    return median(numbers) if numbers else None


def _over(value: Number, reference: Number) -> Number:
    """Return the ratio of two numbers; None where one is not known."""
    return value / reference if value is not None and reference else None


def _most(of_ranks: Iterable[int | None]) -> int | None:
    """Return the most of any rank; None if a rank did not report it."""
    values = list(of_ranks)
    numbers = [value for value in values if value is not None]
    return max(numbers, default=None) if len(numbers) == len(values) else None


def _peak_bytes(record: Record) -> int | None:
    return _most(rank.peak_memory_bytes for rank in record.ranks)


def _state_bytes(record: Record) -> int | None:
    return _most(rank.optimizer_state_bytes for rank in record.ranks)


def _kept_share(record: Record) -> float | None:
    held = [
        rank.held_elements for rank in record.ranks if rank.held_elements is not None
    ]
    return max(held) / record.model.parameters if held and record.model else None


def _sent_bytes(record: Record, kind: CollectiveKind | None = None) -> float | None:
    """Return the bytes per iteration that one rank passes on, by default of all collectives."""
    return _per_iteration(
        record, lambda m: m.bytes * m.count if kind is None or m.kind == kind else 0
    )


PATHS = (
    "Rows of one number of {units} and global batch that differ in the training path (precision, "
    "memory format, compilation, accumulated batches, buckets; docs/keys.md), or in a strategy "
    "that shards. Of default: divided by the row of the same strategy on the default path; in fp32 "
    "where there is none. Messages and MB per iteration: all that one rank passes on in the "
    "instrumented epoch (1e6 bytes). Exposed: seconds of communication there that no computation "
    "hides. Peak memory: the most of any rank in the timed epoch (GB = 1e9 bytes). Loss: the mean "
    "over its samples, while training."
)
SHARDING = (
    "Of ddp: divided by ddp at the same batch and path. Kept: elements that the rank with the most "
    "keeps, in % of the model (fsdp: parameters and their optimizer state; zero1: optimizer "
    "state). Optimizer state: of the rank with the most, after training."
)


def _megabytes(value: float) -> str:
    """Return bytes as MB (1e6 bytes) with three digits."""
    return three_digits(value / 1e6)


class PathPlace(NamedTuple):
    """What rows have in common that differ in their path; `treatment` is that apart from it."""

    gpus: int
    nodes: int
    strategy: Strategy
    global_batch: int
    treatment: str


class _PathRow(NamedTuple):
    """A row of the group with its site and its training path."""

    site: PathPlace
    path: TrainingPath
    row: Row


class PathLine(NamedTuple):
    """Time, messages, memory and loss of a row: bytes, seconds, shares of 1.

    `*_of_default` are ratios to the row of the default path, `*_of_ddp` to that of ddp.
    """

    epoch_s: Annotated[float, Shown("s", seconds, "epoch")]
    epoch_of_default: Annotated[Number, Shown("of default", ratio, "epoch")]
    epoch_of_ddp: Annotated[Number, Shown("of ddp", ratio, "epoch")]
    global_batch: Annotated[int, Shown("global batch")]
    messages_per_iteration: Annotated[
        Number, Shown("messages", three_digits, "per iteration")
    ]
    sent_bytes_per_iteration: Annotated[
        Number, Shown("MB", _megabytes, "per iteration")
    ]
    comm_exposed_s: Annotated[Number, Shown("exposed, s", seconds)]
    peak_memory_bytes: Annotated[Number, Shown("GB", gigabytes, "peak memory")]
    peak_memory_of_default: Annotated[Number, Shown("of default", ratio, "peak memory")]
    peak_memory_of_ddp: Annotated[Number, Shown("of ddp", ratio, "peak memory")]
    kept: Annotated[Number, Shown("kept, %", percent)]
    optimizer_state_bytes: Annotated[Number, Shown("optimizer state, MB", _megabytes)]
    train_loss: Annotated[Number, Shown("loss", loss)]
    all_reduce_bytes_per_iteration: Number
    reduce_scatter_bytes_per_iteration: Number
    all_gather_bytes_per_iteration: Number
    broadcast_bytes_per_iteration: Number


SHARDING_FIELDS = (
    *("epoch_of_ddp", "peak_memory_of_ddp", "kept", "optimizer_state_bytes"),
    *(f"{kind}_bytes_per_iteration" for kind in KINDS),
)


def training_paths(context: GroupContext) -> Table | None:
    """Return rows that differ in their training path, or shard; None where none do."""
    group = context.group
    if group.imported:
        return None
    rows = [_of_row(group, row) for row in group.timed]
    counts = Counter(path_row.site for path_row in rows)
    sharded = _sharded_sites(group)
    path_rows = [r for r in rows if counts[r.site] > 1 or _site(r.row) in sharded]
    path_rows.sort(key=_order)
    if not path_rows:
        return None
    title, without = "Training paths", SHARDING_FIELDS
    how = [PATHS.format(units=captions.units(group.device))]
    if sharded:
        title, without = "Training paths and sharding", ()
        how.append(SHARDING)
    how.append(captions.runs([row for *_, row in path_rows]))
    text = TableText(
        "paths",
        title,
        "timed and instrumented epoch",
        tuple(how),
        affected=Affected.TIME,
    )
    notes = [WHOLE_PROCESS] if group.device is Device.CPU else []
    heads = columns_of(PathLine, without=without)
    return line_table(group, text, list(_lines(group, path_rows)), heads, notes)


def _sharded_sites(group: ConditionGroup) -> set[tuple[int, int, int, str]]:
    """Return where a strategy that shards was measured."""
    shards = (
        r for r in group.timed if r.strategy.traffic.shards is not Sharded.NOTHING
    )
    return set(map(_site, shards))


def _site(row: Row) -> tuple[int, int, int, str]:
    """Return where strategies are compared: GPUs, nodes, batch per GPU and training path."""
    return row.gpus, row.nodes, row.batch_per_gpu, row.path


def _lines(
    group: ConditionGroup, rows: list[_PathRow]
) -> Iterator[tuple[Row, PathLine]]:
    """Yield the line of each row; numbers of records are medians over its runs."""
    defaults: dict[PathPlace, Row] = {}
    for site, path, row in sorted(
        rows, key=lambda path_row: path_row.path != TrainingPath()
    ):
        if path in (TrainingPath(), TrainingPath(precision=Precision.FP32)):
            defaults.setdefault(site, row)
    ddp_rows = {
        _site(row): row
        for row in group.timed
        if row.strategy is Strategy.DDP and row.setup.is_plain
    }
    for site, _, row in rows:
        records = group.records(row)
        epoch_s, peak = _epoch_and_peak(group, row)
        default_s, default_peak = _epoch_and_peak(group, defaults.get(site))
        ddp_s, ddp_peak = _epoch_and_peak(group, ddp_rows.get(_site(row)))
        sent = {
            f"{kind}_bytes_per_iteration": _median_of(
                records, partial(_sent_bytes, kind=kind)
            )
            for kind in KINDS
        }
        yield (
            row,
            PathLine(
                epoch_s=row.figures.epoch_s,
                epoch_of_default=_over(epoch_s, default_s),
                epoch_of_ddp=_over(epoch_s, ddp_s),
                global_batch=row.global_batch,
                messages_per_iteration=_median_of(records, _messages),
                sent_bytes_per_iteration=_median_of(records, _sent_bytes),
                comm_exposed_s=row.figures.comm_exposed_s,
                peak_memory_bytes=peak,
                peak_memory_of_default=_over(peak, default_peak),
                peak_memory_of_ddp=_over(peak, ddp_peak),
                kept=_median_of(records, _kept_share),
                optimizer_state_bytes=_median_of(records, _state_bytes),
                train_loss=_median_of(records, lambda record: record.loss),
                **sent,
            ),
        )


def _epoch_and_peak(group: ConditionGroup, row: Row | None) -> tuple[Number, Number]:
    """Return the time of an epoch and the peak memory of a row; None without a row."""
    if row is None:
        return None, None
    return row.figures.epoch_s, _median_of(group.records(row), _peak_bytes)


def _of_row(group: ConditionGroup, row: Row) -> _PathRow:
    cell = group.records(row)[0].cell
    treatment = msgspec.structs.replace(cell, path=TrainingPath()).treatment
    site = PathPlace(row.gpus, row.nodes, row.strategy, row.global_batch, treatment)
    return _PathRow(site, cell.path, row)


def _order(path_row: _PathRow) -> tuple[object, ...]:
    """Return the order of rows: by site, the default path first, numbers by their size."""
    path, site = path_row.path, path_row.site
    precisions = [None, *Precision]
    return (
        *(site.gpus, site.nodes, [*Strategy].index(site.strategy), site.global_batch),
        natural_key(site.treatment),
        precisions.index(path.precision),
        path.channels_last,
        path.compile or "",
        path.accumulate,
        path_row.row.treatment,
    )


def _messages(record: Record) -> float | None:
    return _per_iteration(record, lambda message: message.count)


def _per_iteration(record: Record, number: Callable[[Message], int]) -> float | None:
    communication, iterations = record.communication, record.instrumented_iterations
    if communication is None or not iterations:
        return None
    return sum(map(number, communication.messages)) / iterations or None


LARGEST_CAPTION = (
    "Batch per {unit}; every batch is tried in a new process. Memory: the most that any rank used"
    " with the largest batch that fits (GB = 1e9 bytes)."
)


class Largest(NamedTuple):
    """The largest batch of a row that was measured, its memory in bytes, and why no larger one."""

    strategy: str
    gpus: int
    nodes: int
    treatment: str
    batch: Annotated[int | None, Shown("largest batch", count)]
    memory_bytes: Annotated[int | None, Shown("memory, GB", gigabytes)]
    stopped: Annotated[str, Shown("limit", words=True)]


def largest(context: GroupContext) -> Table | None:
    """Return the largest batch of rows that climbed a ladder or ran out of memory; None without."""
    group = context.group
    rungs = {result.slug for result in group.cells if result.ladder}
    items = []
    for setup, members in groupby(group.rows, lambda row: row.setup):
        rows = list(members)
        climbs = any(rungs & set(row.cells) for row in rows)
        if climbs or any(row.outcome is Outcome.OOM for row in rows):
            label = captions.full_label(setup, group.device)
            items.append((label, _largest_of(group, rows, climbs)))
    if not items:
        return None
    caption = LARGEST_CAPTION.format(unit=captions.unit(group.device))
    text = TableText("largest", "Largest batch that fits", "", (caption,))
    return item_table([group], text, items, columns_of(Largest))


def _largest_of(group: ConditionGroup, rows: list[Row], climbed: bool) -> Largest:
    """Return the largest batch of a setup, from its rows by batch."""
    measured = [row for row in rows if row.timing]
    batch = memory_bytes = None
    if measured:
        batch = measured[-1].batch_per_gpu
        ranks = chain(*(record.ranks for record in group.records(measured[-1])))
        memory_bytes = max((rank.peak_memory_bytes or 0 for rank in ranks), default=0)
    return filled(
        Largest,
        rows[0],
        strategy=rows[0].strategy.value,
        batch=batch,
        memory_bytes=memory_bytes or None,
        stopped=_stop(rows, batch, climbed),
    )


def _stop(rows: list[Row], best: int | None, climbed: bool) -> str:
    """Return why there is no larger batch: the next one's outcome, or why none was tried."""
    beyond = [row for row in rows if best is None or row.batch_per_gpu > best]
    if beyond:
        is_oom = beyond[0].outcome is Outcome.OOM
        words = "ran out of memory" if is_oom else beyond[0].outcome.value
        return f"{beyond[0].batch_per_gpu} {words}"
    if climbed:
        return "the next is larger than one rank's share of the data"
    return "no larger one was requested"
