"""Times by batch: exact at measured batches, between and beyond them a line with physical signs."""

import itertools
import math
from collections.abc import Mapping
from typing import NamedTuple

from hpml_jobs.predict import least_squares


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
