"""The sizes that the answer is about: those of one strategy at one batch, the smallest first."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from hpml_jobs.core.strategies import Strategy
from hpml_jobs.results.rows import Pair, Row, by_key

NEARLY = 0.9
"""A batch with this share of the best rate of the smallest size is as good as the best one."""


class Series(NamedTuple):
    """Two sizes or more at one batch per GPU, or `is_global`: at one global batch.

    Each is paired with the smallest one, which is the first and paired with itself.
    """

    batch: int
    is_global: bool
    sizes: tuple[Pair, ...]

    @property
    def smallest(self) -> Row:
        """The row that the others are compared with."""
        return self.sizes[0].parallel

    @property
    def largest(self) -> Pair:
        """The size with the most GPUs."""
        return self.sizes[-1]


def series_of(rows: Sequence[Row], pairs: Iterable[Pair]) -> Series | None:
    """Return the series of the answer from plain rows; None where nothing is compared.

    It has the most sizes. Of several batches it is the largest one whose rate on the smallest size
    is within 10 % of the best.
    """
    found = list(_at_batches(rows)) or list(_at_global_batches(pairs, rows))
    if not found:
        return None
    most = max(len(series.sizes) for series in found)
    longest = [series for series in found if len(series.sizes) == most]
    best_s = min(series.smallest.epoch_s for series in longest)
    near = [s for s in longest if NEARLY * s.smallest.epoch_s <= best_s]
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


def _at_batches(rows: Iterable[Row]) -> Iterator[Series]:
    by_batch = by_key((row.batch_per_gpu, row) for row in rows)
    for batch, of_batch in by_batch.items():
        reference = min(of_batch, key=lambda row: (row.gpus, row.epoch_s))
        if any(row.gpus > reference.gpus for row in of_batch):
            yield _series(batch, reference, of_batch)


def _at_global_batches(pairs: Iterable[Pair], rows: Sequence[Row]) -> Iterator[Series]:
    of_rows = [pair for pair in pairs if pair.parallel in rows]
    by_batch = by_key((pair.parallel.global_batch, pair) for pair in of_rows)
    for batch, same in by_batch.items():
        parallel = [pair.parallel for pair in same]
        series = _series(batch, same[0].reference, parallel)
        yield series._replace(is_global=True)


def _series(batch: int, reference: Row, rows: Sequence[Row]) -> Series:
    """Return the fastest row of each size against a reference."""
    slowest_first = sorted(rows, key=attrgetter("epoch_s"), reverse=True)
    fastest = {row.gpus: row for row in slowest_first}
    sizes = [Pair(reference, reference)]
    for gpus, row in sorted(fastest.items()):
        if gpus > reference.gpus:
            sizes.append(Pair(reference, row))
    return Series(batch, is_global=False, sizes=tuple(sizes))
