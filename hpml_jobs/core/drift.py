"""Drift of the iteration times within an epoch, from the medians of ten blocks."""

from collections.abc import Sequence
from itertools import combinations
from statistics import mean, median

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
    first = mean(values[:ENDS])
    return mean(values[-ENDS:]) / first - 1 if first > 0 else 0.0


def over_ranks(blocks: Sequence[Sequence[float]]) -> list[float]:
    """Return the median over ranks of each block: ranks that train together drift together."""
    return [median(of_ranks) for of_ranks in zip(*blocks, strict=True)]
