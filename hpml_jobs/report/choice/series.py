"""The sizes that the answer is about: those of one strategy at one batch, the smallest first."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from hpml_jobs.core import formulas
from hpml_jobs.core.statistics import Interval
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.results.groups import ConditionGroup, pairs
from hpml_jobs.results.rows import Row, by_key, speedup_interval

NEARLY = 0.9
"""A batch with this share of the best rate of the smallest size is as good as the best one."""


class Size(NamedTuple):
    """A size with its speedup and efficiency over the smallest one, whose own are 1.

    `interval` is that of the speedup; None: of the smallest size, or not known.
    """

    row: Row
    speedup: float
    efficiency: float
    interval: Interval | None
    is_doubtful: bool

    @property
    def efficiencies(self) -> Interval | None:
        """The interval of the efficiency."""
        return self.interval and self.interval.divided_by(
            self.speedup / self.efficiency
        )

    def is_near(self, efficiency: float) -> bool:
        """Return whether the interval of its efficiency has another one in it."""
        ends = self.efficiencies
        return ends is not None and ends.low < efficiency <= ends.high


class Series(NamedTuple):
    """Two sizes or more at one batch per GPU, or `is_global`: at one global batch."""

    batch: int
    is_global: bool
    sizes: tuple[Size, ...]

    @property
    def smallest(self) -> Row:
        """The row that the others are compared with."""
        return self.sizes[0].row

    @property
    def largest(self) -> Size:
        """The size with the most GPUs."""
        return self.sizes[-1]


def series_of(group: ConditionGroup) -> Series | None:
    """Return the series of the answer; None where nothing is compared.

    It has the most sizes. Of several batches it is the largest one whose rate on the smallest size
    is within 10 % of the best.
    """
    rows = plain_rows(group.timed)
    found = list(_at_batches(group, rows)) or list(_at_global_batches(group, rows))
    if not found:
        return None
    most = max(len(series.sizes) for series in found)
    longest = [series for series in found if len(series.sizes) == most]
    best_s = min(time_s(series.smallest) for series in longest)
    near = [s for s in longest if NEARLY * time_s(s.smallest) <= best_s]
    return max(near, key=lambda series: series.batch)


def plain_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of one training path and strategy, with nothing done to them.

    Where all have a treatment it is the most frequent one; ddp goes before other strategies.
    """
    if not rows:
        return []
    treatments = Counter((row.path, row.treatment) for row in rows)
    plain = [key for key in treatments if key[0] == key[1]]
    path, treatment = max(plain or treatments, key=treatments.__getitem__)
    alike = [
        row
        for row in rows
        if row.path == path and (row.treatment == treatment or row.is_baseline)
    ]
    strategies = Counter(row.strategy for row in alike if not row.is_baseline)
    main = max(strategies, key=strategies.__getitem__, default=Strategy.DDP)
    if Strategy.DDP in strategies:
        main = Strategy.DDP
    return [row for row in alike if row.is_baseline or row.strategy is main]


def time_s(row: Row) -> float:
    """Return the seconds of a row with a number."""
    return row.figures.epoch_s


def _at_batches(group: ConditionGroup, rows: Iterable[Row]) -> Iterator[Series]:
    by_batch = by_key((row.batch_per_gpu, row) for row in rows)
    for batch, of_batch in by_batch.items():
        reference = min(of_batch, key=lambda row: (row.gpus, time_s(row)))
        if any(row.gpus > reference.gpus for row in of_batch):
            yield _series(group, batch, reference, of_batch)


def _at_global_batches(group: ConditionGroup, rows: Sequence[Row]) -> Iterator[Series]:
    of_rows = [pair for pair in pairs(group) if pair.parallel in rows]
    for batch, same in by_key((pair.global_batch, pair) for pair in of_rows).items():
        parallel = [pair.parallel for pair in same]
        series = _series(group, batch, same[0].reference, parallel)
        yield series._replace(is_global=True)


def _series(
    group: ConditionGroup, batch: int, reference: Row, rows: Sequence[Row]
) -> Series:
    """Return the fastest row of each size against a reference."""
    fastest = {row.gpus: row for row in sorted(rows, key=time_s, reverse=True)}
    larger = [row for gpus, row in sorted(fastest.items()) if gpus > reference.gpus]
    first = Size(reference, 1.0, 1.0, None, group.doubts_ratio(reference, reference))
    others = (size_of(group, row, reference) for row in larger)
    return Series(batch, is_global=False, sizes=(first, *others))


def size_of(group: ConditionGroup, row: Row, reference: Row) -> Size:
    """Return a row as a size against a reference."""
    speedup = formulas.speedup(time_s(reference), time_s(row))
    efficiency = formulas.efficiency(speedup, row.gpus, reference.gpus)
    interval = speedup_interval(reference, row)
    return Size(row, speedup, efficiency, interval, group.doubts_ratio(row, reference))
