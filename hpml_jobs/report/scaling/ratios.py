"""Speedups of a group by kind of scaling, as lines of one strategy, treatment and batch."""

from collections.abc import Iterable
from typing import NamedTuple

from hpml_jobs.core import formulas
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.rows import Row
from hpml_jobs.report.scaling.strong import pairs


class Ratio(NamedTuple):
    """A row and the row that it is compared with; `batch` is what both have in common."""

    row: Row
    reference: Row
    batch: int
    speedup: float

    @property
    def efficiency(self) -> float:
        """The speedup over the growth in GPUs."""
        return formulas.efficiency(self.speedup, self.row.gpus, self.reference.gpus)


class LineKey(NamedTuple):
    """What the ratios of a line have in common; strategy and treatment by their names."""

    strategy: str
    treatment: str
    batch: int


def strong(group: ConditionGroup) -> list[Ratio]:
    """Return the ratios at the same global batch."""
    return [
        Ratio(pair.parallel, pair.reference, pair.global_batch, pair.speedup)
        for pair in pairs(group)
    ]


def weak(group: ConditionGroup) -> list[Ratio]:
    """Return the ratios at the same batch per GPU."""
    return [
        Ratio(row, reference, row.batch_per_gpu, row.speedup)
        for row in group.timed
        if (reference := group.reference(row))
        and reference is not row
        and row.speedup
        and row.gpus >= reference.gpus
    ]


def lines(ratios: Iterable[Ratio]) -> dict[LineKey, list[Ratio]]:
    """Return ratios by the line that they are on."""
    by_line: dict[LineKey, list[Ratio]] = {}
    for ratio in ratios:
        row = ratio.row
        key = LineKey(row.strategy.value, row.treatment, ratio.batch)
        by_line.setdefault(key, []).append(ratio)
    return by_line
