"""Times by batch: of the plain loop, of measured sizes, of micro-steps, and of shared nodes.

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
from hpml_jobs.predict.network import Exposed, Network, UnknownPriceError, exposed
from hpml_jobs.predict.place import Observation, Size, Target, changed

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
    """How long measured sizes take at any batch, by the plain loop where it was measured."""

    def __init__(self, cells: Sequence[Observation], network: Network) -> None:
        """Take the cells of a series on several GPUs, and the plain loop; both may be missing."""
        self.network = network
        self.series = [cell for cell in cells if cell.gpus > 1]
        self.single = {c.batch: c for c in cells if c.gpus == 1 and c.accumulate == 1}
        self.alone_s = {batch: cell.step_s for batch, cell in self.single.items()}
        if len(self.alone_s) < LEAST_BATCHES:
            self.alone_s = _unsynced_s(self.series) | self.alone_s

    @cached_property
    def sizes(self) -> list[Size]:
        """The measured sizes of several GPUs, from the smallest."""
        return sorted({cell.size for cell in self.series})

    @cached_property
    def curve(self) -> BatchCurve | None:
        """An iteration without exchange by batch; None without two batches of it.

        It is the plain loop, or where that was measured at fewer batches, as with a fixed global
        batch, also without gradient exchange on several GPUs.
        """
        return batch_curve(self.alone_s) if len(self.alone_s) >= LEAST_BATCHES else None

    def ratio(self, cell: Observation, batch: int) -> float:
        """Return how much longer an iteration computes at another batch than in a cell."""
        curve = self.curve
        if curve is None:
            return batch / cell.batch
        return curve.at(batch) / curve.at(cell.batch)

    def _curve_of(self, cells: Mapping[int, Observation]) -> BatchCurve | None:
        """Return the time of a size by batch; None where nothing tells how it depends on it."""
        if len(cells) > 1:
            return batch_curve({batch: cell.step_s for batch, cell in cells.items()})
        if self.curve is None:
            return None
        ((batch, cell),) = cells.items()
        rest_s = max(0.0, cell.step_s - cell.accumulate * self.curve.at(batch))
        times_s = {b: cell.accumulate * s + rest_s for b, s in self.alone_s.items()}
        return batch_curve(times_s | {batch: cell.step_s})

    def micro_step_s(self, size: Size, target: Target) -> float:
        """Return the time of a micro-step without exchange, which further accumulation adds.

        It is t0 of t0 x micro-steps + c where a batch was measured
        with several numbers of micro-steps, else the iteration without exchange less its optimizer.

        Raises:
            CannotPredictError: neither was measured.
        """
        cells = [cell for cell in self.series if cell.size == size]
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

    def cells_of(self, size: Size, accumulate: int) -> dict[int, Observation]:
        """Return a size's cells by batch, of the measured accumulation nearest to one."""
        cells = [cell for cell in self.series if cell.size == size]
        nearest = min(
            {cell.accumulate for cell in cells},
            key=lambda measured: (abs(math.log(measured / accumulate)), measured),
        )
        return {cell.batch: cell for cell in cells if cell.accumulate == nearest}

    def time_at(self, size: Size, cells: Mapping[int, Observation], batch: int) -> float | None:
        """Return an iteration of a measured size: as measured, else by other sizes or batches.

        None where nothing that was measured tells how it depends on the batch.
        """
        if batch in cells:
            return cells[batch].step_s
        for smaller in self._smaller(size, next(iter(cells.values())).accumulate):
            common = [b for b in cells if b in smaller]
            if batch in smaller and common:
                return self._transferred(cells, smaller, common, batch)
        curve = self._curve_of(cells)
        return curve.at(batch) if curve else None

    def _smaller(self, size: Size, accumulate: int) -> list[dict[int, Observation]]:
        """Return the cells of smaller sizes by batch, the largest size first, then one GPU."""
        smaller = [s for s in self.sizes if s.gpus < size.gpus and s.nodes <= size.nodes]
        cells = [
            {
                cell.batch: cell
                for cell in self.series
                if cell.size == other and cell.accumulate == accumulate
            }
            for other in reversed(smaller)
        ]
        return [*cells, self.single] if accumulate == 1 else cells

    def _transferred(
        self,
        cells: Mapping[int, Observation],
        smaller: Mapping[int, Observation],
        common: Sequence[int],
        batch: int,
    ) -> float:
        """Return t(N, b) = h t(n, b) + [t(N, b') - h t(n, b')] + the change of exposed exchange.

        h is how much longer an iteration without exchange takes on the larger size, where more of
        its processes share a node. What the batches b' = `common` have in common besides is one
        constant: against one GPU it is interference, which is zero or more.
        """
        slower = slowdown([cells[b] for b in common], [smaller[b] for b in common])
        added_s = {b: self._added_s(cells[b], smaller[b], b) for b in common}
        rests = [cells[b].step_s - slower * smaller[b].step_s - added_s[b] for b in common]
        weights = [1 / cells[b].step_s for b in common]
        if smaller[batch].gpus == 1:
            constant_s = least_squares.fit([(1.0,)] * len(rests), rests, weights).coefficients[0]
        else:
            squares = [weight * weight for weight in weights]
            constant_s = math.fsum(w * r for w, r in zip(squares, rests, strict=True)) / math.fsum(
                squares
            )
        near = nearest_batch(batch, {b: cells[b] for b in common})
        added_here_s = self._added_s(cells[near], smaller[batch], batch)
        return slower * smaller[batch].step_s + added_here_s + constant_s

    def _added_s(self, cell: Observation, smaller: Observation, batch: int) -> float:
        """Return a cell's exposed communication less that of a smaller size; 0 if unknown."""
        try:
            here = self.exposed(cell, cell.size, batch)
            if smaller.gpus == 1:
                return here.seconds
            below = self.exposed(smaller, smaller.size, batch)
        except UnknownPriceError:
            return 0.0
        return here.seconds - below.seconds

    def exposed(self, cell: Observation, size: Size, batch: int) -> Exposed:
        """Return the exposed communication of a cell's messages at a size and batch."""
        return exposed(self.network, cell, size, self.ratio(cell, batch))


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
