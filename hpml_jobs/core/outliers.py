"""What the times of an epoch's iterations show: outliers, and a drift between ten blocks."""

from collections.abc import Sequence
from itertools import combinations
from statistics import fmean, median, quantiles

from hpml_jobs.core.measurements import SlowIterations

LEAST_ITERATIONS = 5
"""With fewer iterations one slow one shifts the quartiles that it is compared with."""

LEAST_RATIO = 1.5
"""An iteration below so many medians is never outlying: a few of them are no event."""

QUARTILE_POWER = 6
"""Fence on a logarithmic scale: so many times the distance of the upper quartile (4 sigma)."""

QUARTILE_RANGES = 10
"""Fence on a linear scale: so many inter-quartile ranges above the upper quartile."""


def slow_iterations(
    step_s: Sequence[float], stall_s: Sequence[float] | None = None
) -> SlowIterations | None:
    """Return the outlying ones of an epoch's iterations; None with fewer than 5.

    Outlying is what exceeds 1.5 medians and the lower of two fences: median x (q3 / median)^6,
    which follows long tails, and q3 + 10 (q3 - q1), which follows two modes. With `stall_s`, the
    wait for each iteration's batch, the start of the loader is left out of the first iteration.

    >>> slow = slow_iterations([0.04] * 4 + [8.0] + [0.05] * 5)
    >>> slow.count, slow.longest_s, slow.longest_index, round(slow.excess_s, 2)
    (1, 8.0, 4, 7.95)
    >>> slow_iterations([1.0, 1.1, 0.9, 1.2, 1.0, 1.3]).count
    0
    """
    if len(step_s) < LEAST_ITERATIONS:
        return None
    steps = [float(seconds) for seconds in step_s]
    if stall_s is not None:
        steps[0] += median(map(float, stall_s)) - float(stall_s[0])
    typical_s, fence = median(steps), fence_s(steps)
    excesses = [seconds - typical_s for seconds in steps if seconds > fence]
    longest_s = max(steps)
    return SlowIterations(
        count=len(excesses),
        excess_s=float(sum(excesses)),
        longest_s=longest_s,
        longest_index=steps.index(longest_s),
    )


def fence_s(step_s: Sequence[float]) -> float:
    """Return the seconds above which an iteration is outlying. Needs two iterations or more."""
    first, middle, third = quantiles(step_s, n=4, method="inclusive")
    if middle <= 0:
        return max(step_s)
    by_ratio = middle * (third / middle) ** QUARTILE_POWER
    by_range = third + QUARTILE_RANGES * (third - first)
    return max(LEAST_RATIO * middle, min(by_ratio, by_range))


BLOCKS = 10
"""Consecutive blocks of an epoch, of equal numbers of iterations."""

ENDS = 3
"""Blocks at either end whose mean is compared."""


def kendall_s(values: Sequence[float]) -> int:
    """Return Kendall's S: the pairs in rising order less the pairs in falling order.

    Of ten values without a trend, S >= 27 has a probability of 0.8 %, S <= -27 the same; |S| is 45
    at most.

    >>> kendall_s([1.0, 2.0, 3.0]), kendall_s([3.0, 2.0, 1.0]), kendall_s([1.0, 3.0, 1.0])
    (3, -3, 0)
    """
    return sum((later > earlier) - (later < earlier) for earlier, later in combinations(values, 2))


def change_of_ends(values: Sequence[float]) -> float:
    """Return by which share the last three values are above the first three, by their means.

    >>> round(change_of_ends([1.0, 1.0, 1.0, 5.0, 1.1, 1.1, 1.1]), 3)
    0.1
    """
    first = fmean(values[:ENDS])
    return fmean(values[-ENDS:]) / first - 1 if first > 0 else 0.0


def over_ranks(blocks: Sequence[Sequence[float]]) -> list[float]:
    """Return the median over ranks of each block: ranks that train together drift together."""
    return [median(of_ranks) for of_ranks in zip(*blocks, strict=True)]
