"""Tests within rounds, and several comparisons with one error rate.

The derivations are in docs/formulas.md.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations, combinations_with_replacement
from math import comb, sqrt
from statistics import median

from hpml_jobs.core.statistics import CONFIDENCE, Interval
from hpml_jobs.results.decision import (
    EXACT_RUNS,
    LEAST_RUNS,
    Comparison,
    Ratio,
    compare,
    doubled_ranks,
    mann_whitney_p,
    normal_interval_rank,
    normal_p,
)


class ComparisonWithinRounds(Comparison):
    """The runs of two cells, compared; those at one place of both were measured in one round."""

    @property
    def ratio(self) -> Ratio:
        """The ratio of the subject's times to the other's within rounds."""
        return paired_ratio(self.subject, self.other)


def runs_needed(tests: int, *, paired: bool = False) -> int:
    """Return the runs per cell from which all of these comparisons can be significant.

    With n and n runs the smallest p is 2 / C(2n, n), with n pairs 2 / 2^n.

    >>> [runs_needed(tests) for tests in (1, 3, 6, 10)]
    [4, 5, 5, 6]
    >>> [runs_needed(tests, paired=True) for tests in (1, 3, 6, 10)]
    [6, 7, 8, 9]
    """

    def orders(runs: int) -> int:
        return 2**runs if paired else comb(2 * runs, runs)

    runs = LEAST_RUNS
    while tests * 2 / orders(runs) > 1 - CONFIDENCE:
        runs += 1
    return runs


def compare_one_of(
    tests: int, subject: Sequence[float], other: Sequence[float]
) -> Comparison:
    """Compare the times of two cells, as one of so many comparisons with one error rate."""
    comparison = compare(subject, other)
    is_decidable = min(len(subject), len(other)) >= runs_needed(tests)
    p = None
    if comparison.p is not None and is_decidable:
        p = min(1.0, tests * comparison.p)
    return comparison._replace(p=p)


def compare_all(
    samples: Sequence[Sequence[float]], *, paired: bool = False
) -> dict[tuple[int, int], Comparison]:
    """Compare every two of some cells, by their indices (i, j), with Holm's correction.

    The chance of any false difference is at most 5 % for all of them together, and so also for
    comparisons with a cell that is chosen from the same times, as the fastest is. Holm, 1979.

    `paired`: the runs at one place were measured in one round, so that a drift of the machine is in
    both of them (Wilcoxon's signed ranks).
    """
    test = signed_ranks_p if paired else mann_whitney_p
    comparison = ComparisonWithinRounds if paired else Comparison
    numbers = range(len(samples))
    tuples = [tuple(sample) for sample in samples]
    runs = {(i, j): (tuples[i], tuples[j]) for i, j in combinations(numbers, 2)}
    p_values = {
        pair: test(first, second)
        for pair, (first, second) in runs.items()
        if min(len(first), len(second)) >= runs_needed(1, paired=paired)
    }
    corrected = _corrected(p_values, len(runs))
    needed = runs_needed(len(runs), paired=paired)
    comparisons = {}
    for (i, j), (first, second) in runs.items():
        is_decidable = min(len(first), len(second)) >= needed
        p = corrected[i, j] if is_decidable else None
        comparisons[i, j] = comparison(first, second, p)
        comparisons[j, i] = comparison(second, first, p)
    return comparisons


def _corrected(
    p_values: Mapping[tuple[int, int], float], tests: int
) -> dict[tuple[int, int], float]:
    """Return the p of each pair, corrected for so many tests."""
    corrected = {}
    largest = 0.0
    smallest_first = sorted((p, pair) for pair, p in p_values.items())
    for place, (p, pair) in enumerate(smallest_first):
        largest = max(largest, min(1.0, (tests - place) * p))
        corrected[pair] = largest
    return corrected


def signed_ranks_p(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the two-sided p of Wilcoxon's signed-rank test of pairs, ties by mean ranks.

    Differences are those of the logarithms; pairs without one are left out. The distribution is
    that of the sum of ranks over all 2^n signs, the normal one above `EXACT_RUNS`. Wilcoxon, 1945.

    >>> signed_ranks_p([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2.0, 4.1, 6.2, 8.3, 10.4, 12.5]) == 2 / 64
    True
    >>> signed_ranks_p([1.0, 2.0], [1.0, 2.0])
    1.0
    """
    ratios = [a / b for a, b in zip(first, second, strict=True) if a != b]
    doubled = doubled_ranks([max(ratio, 1 / ratio) for ratio in ratios])
    total = sum(doubled)
    observed = sum(
        rank for rank, ratio in zip(doubled, ratios, strict=True) if ratio > 1
    )
    far = abs(2 * observed - total)
    if 2 * len(doubled) > EXACT_RUNS:
        return normal_p(far / 2, sum(rank**2 for rank in doubled) / 4)
    counts = _signed_sums(tuple(sorted(doubled)))
    extreme = sum(
        count for at, count in enumerate(counts) if abs(2 * at - total) >= far
    )
    return extreme / (1 << len(doubled))


@cache
def _signed_sums(ranks: tuple[int, ...]) -> list[int]:
    """Return how many choices of some of the ranks have each sum."""
    counts = [1] + [0] * sum(ranks)
    for rank in ranks:
        for at in range(len(counts) - 1, rank - 1, -1):
            counts[at] += counts[at - rank]
    return counts


def paired_ratio(subject: Sequence[float], other: Sequence[float]) -> Ratio:
    """Return the Hodges-Lehmann estimate of the ratio within pairs, with its interval.

    It is the median of the geometric means of every two ratios (each with itself too). The interval
    contains exactly those ratios that the signed-rank test does not reject at 5 % (without ties).

    >>> estimate, interval = paired_ratio((2.0, 4.0, 6.0, 9.0, 8.0, 10.0), (1, 2, 3, 4, 4, 5))
    >>> round(estimate, 3), [round(end, 3) for end in interval]
    (2.0, [2.0, 2.25, 0.969])
    """
    ratios = [a / b for a, b in zip(subject, other, strict=True)]
    means = sorted(sqrt(a * b) for a, b in combinations_with_replacement(ratios, 2))
    k, tail = _paired_interval_rank(len(ratios))
    interval = None
    if k:
        interval = Interval(means[k - 1], means[-k], 1 - 2 * tail)
    return Ratio(median(means), interval)


@cache
def _paired_interval_rank(pairs: int) -> tuple[int, float]:
    """Return the k of the interval of so many pairs, 0 if there is none, and P(T <= k - 1)."""
    if 2 * pairs > EXACT_RUNS:
        mean = pairs * (pairs + 1) / 4
        variance_of_sum = pairs * (pairs + 1) * (2 * pairs + 1) / 24
        return normal_interval_rank(mean, variance_of_sum)
    counts = _signed_sums(tuple(range(1, pairs + 1)))
    k, tail = 0, 0
    while 2 * (tail + counts[k]) / 2**pairs <= 1 - CONFIDENCE:
        tail += counts[k]
        k += 1
    return k, tail / 2**pairs
