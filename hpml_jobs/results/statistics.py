"""Statistics of repeats: medians with distribution-free intervals, resamples of two cells."""

from collections.abc import Mapping, Sequence
from functools import cache
from math import comb, nan
from statistics import NormalDist, median
from typing import TYPE_CHECKING, Any, NamedTuple

from hpml_jobs.core.formulas import relative_iqr

if TYPE_CHECKING:
    from hpml_jobs.core.collective_times import Array, Seconds

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
    draws = draws_of(len(numerator), len(denominator))
    # In order of size, so that the numbers of the repeats change no digit.
    above = _medians(sorted(numerator), draws.of_row)
    below = _medians(sorted(denominator), draws.of_reference)
    ratios = (above / below).tolist()
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


RESAMPLES = 2_000


class DrawnRuns(NamedTuple):
    """The numbers of the runs of a row and of its reference in each resample, (draws, runs)."""

    of_row: "Array"
    of_reference: "Array"


@cache
def draws_of(runs: int, reference_runs: int) -> DrawnRuns:
    """Return 2,000 seeded resamples of two cells with so many runs."""
    import numpy as np  # noqa: PLC0415  (only where there are repeats)

    # this generator never changes in numpy, and draws the numbers of random.Random
    random = np.random.RandomState([runs * 1_000 + reference_runs])
    sizes = [runs, reference_runs]
    numbers = random.random_sample((RESAMPLES, sum(sizes)))
    numbers *= np.repeat(sizes, sizes)
    of_row, of_reference = np.hsplit(numbers.astype(np.int16), [runs])
    return DrawnRuns(of_row, of_reference)


def drawn_medians(
    runs: Sequence[Mapping[Any, float]], draws: "Array"
) -> "dict[Any, Seconds]":
    """Return the median of each time over the drawn runs that have it, by draw; NaN without one.

    >>> import numpy as np
    >>> drawn_medians([{"epoch": 1.0}, {"epoch": 3.0}], np.array([[0, 1], [1, 1]]))
    {'epoch': array([2., 3.])}
    """
    names = dict.fromkeys(name for run in runs for name in run)
    return {
        name: _medians([run.get(name, nan) for run in runs], draws) for name in names
    }


def _medians(runs: Sequence[float], draws: "Array") -> "Seconds":
    """Return the median of the known values of each draw, (draws, runs); NaN if none is known."""
    import numpy as np  # noqa: PLC0415  (only where there are repeats)

    values = np.array(runs)
    ordered = np.sort(values)  # NaN is last
    # small integers are sorted in a fifth of the time of floats
    ranks = np.searchsorted(ordered, values).astype(np.int16)
    drawn = np.sort(ranks.take(draws), axis=1)
    known = (drawn < np.isfinite(values).sum()).sum(axis=1, keepdims=True)
    lower = np.take_along_axis(drawn, (known - 1) // 2, axis=1)
    upper = np.take_along_axis(drawn, known // 2, axis=1)
    medians: Seconds = ((ordered[lower] + ordered[upper]) / 2)[:, 0]
    return medians
