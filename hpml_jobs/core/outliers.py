"""Iterations that are unlike the others of their epoch, and epochs whose iterations differ."""

from collections.abc import Sequence
from statistics import median, quantiles

from hpml_jobs.core.measurements import SlowIterations
from hpml_jobs.core.text import Share

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

LIKE = Share(0.1)
"""By which part of the longer one the median iterations of two epochs alike may differ."""


def unlike(timed: str, later: str) -> str:
    """Return why nothing is split where a later epoch does not do what the timed one does."""
    return (
        f"the timed epoch has {timed}, a later one {later}: seconds per epoch are those of the "
        "timed one, and are not split; give window=50,200 or longer for iterations alike"
    )
