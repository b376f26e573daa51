"""Full table of training paths: the same iterations computed in several ways, side by side."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Annotated, NamedTuple

import msgspec

from hpml_jobs.checks.result import Affected
from hpml_jobs.core.measurements import Message
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.text import natural_key
from hpml_jobs.core.training_path import Precision, TrainingPath
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.builder import Number, Shown, TableText, columns_of, line_table
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import gigabytes, loss, megabytes, ratio, seconds, three_digits
from hpml_jobs.report.frame.rows import Row
from hpml_jobs.report.frame.table import Table
from hpml_jobs.report.sharding import WHOLE_PROCESS, median_of, over, peak_bytes

CAPTION = (
    "Rows of one strategy, number of {units} and global batch, which differ in the training path: "
    "precision, memory format, compilation, accumulated batches, buckets (docs/keys.md). "
    "Of the default: divided by the row of the default path; in fp32 where there is none. Messages "
    "and MB per iteration: all that one rank passes on in the instrumented epoch (1e6 bytes). "
    "Exposed: seconds of communication there that no computation hides. Peak memory: the most of "
    "any rank in the timed epoch (GB = 1e9 bytes). Loss: the mean over its samples, while training."
)


class Site(NamedTuple):
    """What rows have in common that are compared; `treatment` is that apart from their path."""

    gpus: int
    nodes: int
    strategy: Strategy
    global_batch: int
    treatment: str


class _PathRow(NamedTuple):
    """A row of the group with its site and its training path."""

    site: Site
    path: TrainingPath
    row: Row


class PathLine(NamedTuple):
    """Time, messages, memory and loss of a row, and ratios to the row of the default path."""

    epoch_s: Annotated[float, Shown("s", seconds, "epoch")]
    epoch_of_default: Annotated[Number, Shown("of default", ratio, "epoch")]
    global_batch: Annotated[int, Shown("global batch")]
    messages_per_iteration: Annotated[Number, Shown("messages", three_digits, "per iteration")]
    sent_bytes_per_iteration: Annotated[Number, Shown("MB", megabytes, "per iteration")]
    comm_exposed_s: Annotated[Number, Shown("exposed, s", seconds)]
    peak_memory_bytes: Annotated[Number, Shown("GB", gigabytes, "peak memory")]
    peak_memory_of_default: Annotated[Number, Shown("of default", ratio, "peak memory")]
    train_loss: Annotated[Number, Shown("loss", loss)]


def _lines(group: ConditionGroup, rows: list[_PathRow]) -> Iterator[tuple[Row, PathLine]]:
    """Yield the line of each row; numbers of records are medians over its runs."""
    defaults: dict[Site, Row] = {}
    for site, path, row in sorted(rows, key=lambda path_row: path_row.path != TrainingPath()):
        if path in (TrainingPath(), TrainingPath(precision=Precision.FP32)):
            defaults.setdefault(site, row)
    for site, _, row in rows:
        records, default = group.records(row), defaults.get(site)
        peak = median_of(records, peak_bytes)
        default_peak = median_of(group.records(default), peak_bytes) if default else None
        default_s = default.figures.epoch_s if default else None
        yield (
            row,
            PathLine(
                epoch_s=row.figures.epoch_s,
                epoch_of_default=over(row.figures.epoch_s, default_s),
                global_batch=row.global_batch,
                messages_per_iteration=median_of(records, _messages),
                sent_bytes_per_iteration=median_of(records, _sent_bytes),
                comm_exposed_s=row.figures.comm_exposed_s,
                peak_memory_bytes=peak,
                peak_memory_of_default=over(peak, default_peak),
                train_loss=median_of(records, lambda record: record.loss),
            ),
        )


def training_paths(group: ConditionGroup) -> Table | None:
    """Return rows that differ in their training path only; None where none do."""
    if group.imported:
        return None
    rows = [_of_row(group, row) for row in group.timed]
    counts = Counter(path_row.site for path_row in rows)
    shown = sorted((row for row in rows if counts[row.site] > 1), key=_order)
    if not shown:
        return None
    text = TableText(
        "paths",
        "Training paths",
        "timed and instrumented epoch",
        (
            CAPTION.format(units=captions.units(group.device)),
            captions.runs([row for *_, row in shown]),
        ),
        affected=Affected.TIME,
    )
    notes = [WHOLE_PROCESS] if group.device is Device.CPU else []
    lines = list(_lines(group, shown))
    return line_table(group, text, lines, columns_of(PathLine), notes)


def _of_row(group: ConditionGroup, row: Row) -> _PathRow:
    cell = group.records(row)[0].cell
    treatment = msgspec.structs.replace(cell, path=TrainingPath()).treatment
    site = Site(row.gpus, row.nodes, row.strategy, row.global_batch, treatment)
    return _PathRow(site, cell.path, row)


def _order(path_row: _PathRow) -> tuple[object, ...]:
    """Return the order of rows: by site, the default path first, numbers by their size."""
    path = path_row.path
    precisions = [None, *Precision]
    return (
        path_row.site[:-1],
        natural_key(path_row.site.treatment),
        precisions.index(path.precision),
        path.channels_last,
        path.compile or "",
        path.accumulate,
        path.bucket_cap_mb or 0.0,
        path_row.row.treatment,
    )


def _messages(record: Record) -> float | None:
    return _per_iteration(record, lambda message: message.count)


def _sent_bytes(record: Record) -> float | None:
    return _per_iteration(record, lambda message: message.bytes * message.count)


def _per_iteration(record: Record, number: Callable[[Message], int]) -> float | None:
    communication = record.communication
    if communication is None or not record.iterations:
        return None
    return sum(map(number, communication.messages)) / record.iterations or None
