"""Medians of benchmarks with an interval that holds for every distribution."""

from collections.abc import Sequence
from math import comb
from statistics import median

from hpml_jobs.results.statistics import CONFIDENCE, Interval, coverage_of_range


def interval(runs: Sequence[float]) -> Interval | None:
    """Return the order-statistic interval of the median; None with one run, which has none.

    Up to 8 runs it is [min, max] with the coverage it has, which reaches 95 % with 6 of them;
    with more, the narrowest symmetric one that covers 95 %: k runs left outside at either end,
    coverage 1 - 2 P(Binomial(n, 1/2) <= k - 1). Hoefler & Belli, SC15; Le Boudec 2010.
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


def with_interval(values: Sequence[float]) -> str:
    """Return the median and its interval as text."""
    bounds = interval(values)
    ends = f" [{bounds.low:.4f}, {bounds.high:.4f}]" if bounds else ""
    return f"{median(values):.4f}{ends}"
