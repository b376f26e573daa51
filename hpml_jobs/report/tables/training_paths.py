"""Full table of training paths: the same iterations computed in several ways, side by side."""

from collections import Counter
from collections.abc import Callable, Iterator
from statistics import median
from typing import NamedTuple

import msgspec

from hpml_jobs.checks.result import Affected
from hpml_jobs.core.measurements import Message
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.text import natural_key
from hpml_jobs.core.training_path import Precision, TrainingPath
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.rows import Row
from hpml_jobs.report.table import Table
from hpml_jobs.report.tables.builder import Columns, TableText, column, row_table
from hpml_jobs.report.tables.sharding import WHOLE_PROCESS, gigabytes, megabytes, peak_bytes
from hpml_jobs.report.text import captions
from hpml_jobs.report.text.numbers import loss, ratio, seconds, significant

CAPTION = (
    "Rows of one strategy, number of {units} and global batch, which differ in the training path: "
    "precision, memory format, compilation, accumulated batches, buckets (docs/keys.md). "
    "Of the default: divided by the row of the default path; in fp32 where there is none. Messages "
    "and MB per iteration: all that one rank passes on in E2 (1e6 bytes). Exposed: communication "
    "that no computation hides, seconds of E2. Peak memory: the most of any rank in E1 (GB = 1e9 "
    "bytes). Loss: the mean over the samples of E1, while training."
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


class _Numbers:
    """The numbers of rows, and their ratios to the default path at the same site."""

    def __init__(self, group: ConditionGroup, rows: list[_PathRow]) -> None:
        self._group = group
        self._site = {path_row.row.place: path_row.site for path_row in rows}
        self._default: dict[Site, Row] = {}
        for site, path, row in sorted(rows, key=lambda path_row: path_row.path != TrainingPath()):
            if path in (TrainingPath(), TrainingPath(precision=Precision.FP32)):
                self._default.setdefault(site, row)

    def of_default(self, row: Row, number: Callable[[Row], float | None]) -> float | None:
        """Return a number divided by that of the default path; None without one."""
        default = self._default.get(self._site[row.place])
        ours, theirs = number(row), number(default) if default else None
        return ours / theirs if ours is not None and theirs else None

    def of_records(self, row: Row, number: Callable[[Record], float | None]) -> float | None:
        """Return the median over the runs of a row."""
        values = [number(record) for record in self._group.records(row)]
        measured = [value for value in values if value is not None]
        return median(measured) if measured else None

    def memory_bytes(self, row: Row) -> float | None:
        """Return the peak memory of the rank with the most."""
        return self.of_records(row, peak_bytes)


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
        "E1, E2",
        (
            CAPTION.format(units=captions.units(group.device)),
            captions.runs([row for *_, row in shown]),
        ),
        affected=Affected.TIME,
    )
    notes = [WHOLE_PROCESS] if group.device is Device.CPU else []
    heads = tuple(_heads(_Numbers(group, shown)))
    return row_table(group, text, [row for *_, row in shown], heads, notes)


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


def _heads(numbers: _Numbers) -> Iterator[Columns[Row]]:
    def memory_of_default(row: Row) -> float | None:
        return numbers.of_default(row, numbers.memory_bytes)

    yield Columns(
        "epoch",
        (
            column("epoch_s", "s", _epoch_s, seconds),
            column(
                "epoch_of_default", "of default", lambda r: numbers.of_default(r, _epoch_s), ratio
            ),
        ),
    )
    yield Columns("global batch", (column("global_batch", "", lambda row: row.global_batch),))
    yield Columns(
        "per iteration",
        (
            column(
                "messages_per_iteration",
                "messages",
                lambda row: numbers.of_records(row, _messages),
                lambda value: significant(value, 3),
            ),
            column(
                "sent_bytes_per_iteration",
                "MB",
                lambda row: numbers.of_records(row, _sent_bytes),
                megabytes,
            ),
        ),
    )
    yield Columns("exposed, s", (column("comm_exposed_s", "", _exposed_s, seconds),))
    yield Columns(
        "peak memory",
        (
            column("peak_memory_bytes", "GB", numbers.memory_bytes, gigabytes),
            column("peak_memory_of_default", "of default", memory_of_default, ratio),
        ),
    )
    yield Columns(
        "loss",
        (
            column(
                "train_loss",
                "",
                lambda row: numbers.of_records(row, lambda record: record.loss),
                loss,
            ),
        ),
    )


def _epoch_s(row: Row) -> float | None:
    return row.timing.epoch_s if row.timing else None


def _exposed_s(row: Row) -> float | None:
    return row.figures.comm_exposed_s


def _messages(record: Record) -> float | None:
    return _per_iteration(record, lambda message: message.count)


def _sent_bytes(record: Record) -> float | None:
    return _per_iteration(record, lambda message: message.bytes * message.count)


def _per_iteration(record: Record, number: Callable[[Message], int]) -> float | None:
    communication = record.communication
    if communication is None or not record.iterations:
        return None
    return sum(map(number, communication.messages)) / record.iterations or None
