"""Computation by batch: of the plain loop, of a size, of micro-steps, and of shared nodes.

Times by batch are exact at measured batches, between and beyond them a line with physical signs.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from statistics import geometric_mean
from typing import NamedTuple

from hpml_jobs.predict import least_squares
from hpml_jobs.predict.model import CannotPredictError
from hpml_jobs.predict.place import Observation, Target, changed

LEAST_BATCHES = 2
"""Batches that show how long an iteration computes at others."""


class BatchCurve(NamedTuple):
    """A time by batch: `fixed_s` + `per_sample_s` x batch, times a correction.

    `corrections` are measured over fitted times by measured batch; in between they are
    interpolated linearly, beyond the ends they stay. Both coefficients are zero or more.
    """

    fixed_s: float
    per_sample_s: float
    corrections: tuple[tuple[int, float], ...]

    def at(self, batch: int) -> float:
        """Return the time of a batch, in seconds."""
        line_s = self.fixed_s + self.per_sample_s * batch
        return line_s * self._correction(batch)

    def _correction(self, batch: int) -> float:
        first, last = self.corrections[0], self.corrections[-1]
        if batch <= first[0]:
            return first[1]
        for (low, below), (high, above) in itertools.pairwise(self.corrections):
            if batch <= high:
                return below + (above - below) * (batch - low) / (high - low)
        return last[1]


def batch_curve(times_s: Mapping[int, float]) -> BatchCurve:
    """Fit a curve to {batch: seconds} by least squares of relative errors; there is one or more.

    Of one batch alone the time is taken to be in proportion to the batch: that it has a fixed part
    cannot be seen from it.

    >>> curve = batch_curve({8: 3.0, 16: 5.0, 32: 9.0})  # 1 + b / 4
    >>> [round(curve.at(batch), 9) for batch in (4, 16, 64)]
    [2.0, 5.0, 17.0]
    >>> batch_curve({8: 3.0}).at(16)
    6.0
    """
    batches = sorted(times_s)
    rows = [(1.0, float(batch)) if len(batches) > 1 else (0.0, float(batch)) for batch in batches]
    weights = [1 / times_s[batch] for batch in batches]
    fixed_s, per_sample_s = least_squares.fit(
        rows, [times_s[batch] for batch in batches], weights
    ).coefficients
    corrections = tuple(
        (batch, times_s[batch] / (fixed_s + per_sample_s * batch)) for batch in batches
    )
    return BatchCurve(fixed_s, per_sample_s, corrections)


def nearest_batch(batch: int, measured: Mapping[int, object]) -> int:
    """Return the measured batch with the least ratio to a batch, of equal ones the larger.

    >>> nearest_batch(48, {16: None, 32: None, 128: None})
    32
    """
    return min(measured, key=lambda other: (abs(math.log(other / batch)), -other))


class Compute:
    """How long iterations compute, by the plain loop on one GPU where it was measured."""

    def __init__(
        self, single: Mapping[int, Observation], series: Sequence[Observation] = ()
    ) -> None:
        """Take the plain loop by batch, and the cells on several GPUs; both may be empty."""
        self.alone_s = {batch: cell.step_s for batch, cell in single.items()}
        if len(self.alone_s) < LEAST_BATCHES:
            self.alone_s = _unsynced_s(series) | self.alone_s

    @cached_property
    def curve(self) -> BatchCurve | None:
        """An iteration without exchange by batch; None without two batches of it.

        It is the plain loop, or where that was measured at fewer batches, as with a fixed global
        batch, also E3 on several GPUs.
        """
        return batch_curve(self.alone_s) if len(self.alone_s) >= LEAST_BATCHES else None

    def ratio(self, cell: Observation, batch: int) -> float:
        """Return how much longer an iteration computes at another batch than in a cell."""
        curve = self.curve
        if curve is None:
            return batch / cell.batch
        return curve.at(batch) / curve.at(cell.batch)

    def curve_of(self, cells: Mapping[int, Observation]) -> BatchCurve | None:
        """Return the time of a size by batch; None where nothing tells how it depends on it."""
        if len(cells) > 1:
            return batch_curve({batch: cell.step_s for batch, cell in cells.items()})
        if self.curve is None:
            return None
        ((batch, cell),) = cells.items()
        rest_s = max(0.0, cell.step_s - cell.accumulate * self.curve.at(batch))
        times_s = {b: cell.accumulate * s + rest_s for b, s in self.alone_s.items()}
        return batch_curve(times_s | {batch: cell.step_s})

    def micro_step_s(self, cells: Sequence[Observation], target: Target) -> float:
        """Return the time of a micro-step without exchange, which further accumulation adds.

        `cells` are those of one size. It is t0 of t0 x micro-steps + c where a batch was measured
        with several numbers of micro-steps, else the iteration without exchange less its optimizer.

        Raises:
            CannotPredictError: neither was measured.
        """
        by_batch: dict[int, list[Observation]] = {}
        for cell in cells:
            by_batch.setdefault(cell.batch, []).append(cell)
        several = {b: of_b for b, of_b in by_batch.items() if len({c.accumulate for c in of_b}) > 1}
        if several:
            batch = nearest_batch(target.batch, several)
            rows = [(float(cell.accumulate), 1.0) for cell in several[batch]]
            times_s = [cell.step_s for cell in several[batch]]
            step_s = least_squares.fit(rows, times_s, [1 / t for t in times_s]).coefficients[0]
            return step_s * self.ratio(several[batch][0], target.batch)
        plain = {c.batch: c for c in cells if c.unsynced_s is not None}
        if plain:
            cell = plain[nearest_batch(target.batch, plain)]
            alone_s = ((cell.unsynced_s or 0.0) - (cell.optimizer_s or 0.0)) / cell.accumulate
            return alone_s * self.ratio(cell, target.batch)
        raise CannotPredictError(
            f"accumulate={target.accumulate}: neither another accumulation nor an iteration "
            "without exchange was measured",
            changed(cells[0], accumulate=target.accumulate),
        )


def _unsynced_s(series: Sequence[Observation]) -> dict[int, float]:
    """Return iterations without exchange by batch, of the smallest size that has the batch."""
    largest_first = sorted(series, key=lambda cell: cell.gpus, reverse=True)
    return {
        cell.batch: cell.unsynced_s
        for cell in largest_first
        if cell.unsynced_s is not None and cell.accumulate == 1
    }


def slowdown(larger: Sequence[Observation], smaller: Sequence[Observation]) -> float:
    """Return how much longer iterations without exchange take on a larger size, at equal batches.

    It is 1 where as many processes share a node, and where it was not measured.
    """
    if larger[0].gpus_per_node == smaller[0].gpus_per_node:
        return 1.0
    ratios = []
    for more, fewer in zip(larger, smaller, strict=True):
        alone_s = fewer.step_s if fewer.gpus == 1 else fewer.unsynced_s
        if more.unsynced_s is None or alone_s is None:
            return 1.0
        ratios.append(more.unsynced_s / alone_s)
    return geometric_mean(ratios)
