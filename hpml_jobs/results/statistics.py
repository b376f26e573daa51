"""Statistics of repeats: medians with distribution-free intervals, bootstrap of ratios."""

from collections.abc import Sequence
from functools import cache
from math import comb
from statistics import NormalDist, median
from typing import NamedTuple

from hpml_jobs.core.formulas import relative_iqr

CONFIDENCE = 0.95
ERRORS = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
"""Standard errors to either side of a value within which 95 % of normal errors are: 1.96."""


class Interval(NamedTuple):
    """An interval that contains the true median of the runs with probability `coverage`."""

    low: float
    high: float
    coverage: float

    def divided_by(self, number: float) -> "Interval":
        """Return the interval of the value divided by a number above zero."""
        return self._replace(low=self.low / number, high=self.high / number)


class Sample(NamedTuple):
    """The runs of one place in one unit, with their median, and their interval if it exists."""

    runs: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median of all runs."""
        return median(self.runs)

    @property
    def interval(self) -> Interval | None:
        """The interval of the median, or None with one run."""
        return interval(self.runs)

    @property
    def spread(self) -> float | None:
        """IQR / median; None with one run."""
        return relative_iqr(self.runs) if len(self.runs) > 1 else None


def coverage_of_range(runs: int) -> float:
    """Return the confidence that [min, max] of n runs contains the true median: 1 - 2^(1 - n).

    It holds for every distribution (order statistics; Hoefler & Belli, SC15) and is 0 for one run.

    >>> [coverage_of_range(n) for n in (1, 2, 5, 6)]
    [0.0, 0.5, 0.9375, 0.96875]
    """
    return 1 - 2.0 ** (1 - runs)


def interval(runs: Sequence[float]) -> Interval | None:
    """Return the order-statistic interval of the median; None with one run, which has none.

    Up to 8 runs it is [min, max] with the coverage it has, which reaches 95 % with 6 of them;
    with more, the narrowest symmetric one that covers 95 %: k runs left outside at either end,
    coverage 1 - 2 P(Binomial(n, 1/2) <= k - 1). Hoefler & Belli, SC15; Le Boudec 2010.

    >>> interval([3.0, 1.0, 2.0])
    Interval(low=1.0, high=3.0, coverage=0.75)
    >>> interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])
    Interval(low=2.0, high=8.0, coverage=0.9609375)
    """
    number = len(runs)
    if number < 2:
        return None
    outside, coverage = 0, coverage_of_range(number)
    ways = 1 + number  # in which at most one run is below the median
    while (narrower := 1 - 2 * ways / (1 << number)) >= CONFIDENCE:
        outside, coverage = outside + 1, narrower
        ways += comb(number, outside + 1)
    ordered = sorted(runs)
    return Interval(ordered[outside], ordered[number - 1 - outside], coverage)


@cache
def ratio_interval(
    numerator: tuple[float, ...], denominator: tuple[float, ...]
) -> Interval | None:
    """Return the bootstrap interval (2.5 to 97.5 %) of median(numerator) / median(denominator).

    Percentile bootstrap with 2,000 seeded resamples: the same runs give the same interval. None
    if either cell has a single run, whose resamples are all equal. Few runs cannot cover 95 %,
    however many resamples: coverage is at least that of the range of the fewer runs (simulated in
    tests/unit/results/test_simulations.py).

    >>> ratio_interval((10.0, 10.0), (5.0, 5.0))
    Interval(low=2.0, high=2.0, coverage=0.5)
    """
    if min(len(numerator), len(denominator)) < 2:
        return None
    from hpml_jobs.results.resamples import drawn_ratios  # noqa: PLC0415  (needs numpy)

    # In order of size, so that the numbers of the repeats change no digit.
    ratios = drawn_ratios(sorted(numerator), sorted(denominator))
    return percentiles(ratios, min(len(numerator), len(denominator)))


def is_above(value: float, error: float, limit: float) -> bool:
    """Return whether the lower end of a value's 95 % interval is above a limit.

    >>> is_above(0.08, 0.0, 0.05), is_above(0.08, 0.02, 0.05)
    (True, False)
    """
    return value - ERRORS * error > limit


def percentiles(estimates: Sequence[float], runs: int) -> Interval:
    """Return the 2.5 and 97.5 % percentiles of estimates from resamples of so many runs."""
    ordered = sorted(estimates)
    cut = round((1 - CONFIDENCE) / 2 * len(ordered))
    covered = min(CONFIDENCE, coverage_of_range(runs))
    return Interval(ordered[cut], ordered[-1 - cut], covered)
