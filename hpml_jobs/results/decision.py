"""Decisions between cells: exact tests, ratios, Holm's correction, and how many runs decide.

The derivations are in docs/formulas.md.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from itertools import combinations_with_replacement, product
from math import ceil, comb, floor, log, pi, sqrt
from statistics import NormalDist, median, variance
from typing import NamedTuple, TypeVar

from hpml_jobs.core.statistics import CONFIDENCE, ERRORS, Interval

T = TypeVar("T")

LEAST_RUNS = 4
"""Runs of each cell that a decision needs: with 3 and 3 the smallest possible p is 10 %."""

EXACT_RUNS = 100
"""Runs of two cells together up to which their test is exact; beyond, it is the normal one.

The sums of ranks of 50 and 50 runs are counted in 0.1 s, those of 100 and 100 in 1.3 s.
"""

LEAST_GAP = 0.02
"""Two cells differ only if the ratio of their times exceeds 1 by more than this share."""


class Decision(StrEnum):
    """The result of a comparison of two cells by their times."""

    FASTER = "faster"
    SLOWER = "slower"
    BELOW_GAP = "less than 2 % apart"  # significant, but too small to matter
    SAME = "no significant difference"
    TOO_FEW = "too few runs to tell"


class Ratio(NamedTuple):
    """The Hodges-Lehmann estimate of a ratio of times; no interval below 4 and 4 runs."""

    estimate: float
    interval: Interval | None


class Comparison(NamedTuple):
    """The runs of two cells in seconds, compared; `p` is None where there are too few runs.

    `tests` is the number of comparisons of which this is one; `p` is corrected for them. `paired`:
    the runs of one place in both were measured in one round, and are compared with each other.
    """

    subject: tuple[float, ...]
    other: tuple[float, ...]
    p: float | None
    tests: int = 1
    paired: bool = False

    @property
    def ratio(self) -> Ratio:
        """The ratio of the subject's times to the other's; its interval is of this pair alone."""
        return (paired_ratio if self.paired else hodges_lehmann)(self.subject, self.other)

    @property
    def decision(self) -> Decision:
        """What the runs say: p <= 5 % and a ratio more than 2 % from 1, or no difference."""
        if self.p is None:
            return Decision.TOO_FEW
        if self.p > 1 - CONFIDENCE:
            return Decision.SAME
        estimate = self.ratio.estimate
        if max(estimate, 1 / estimate) <= 1 + LEAST_GAP:
            return Decision.BELOW_GAP
        return Decision.FASTER if estimate < 1 else Decision.SLOWER


def compare(
    subject: Sequence[float], other: Sequence[float], *, tests: int = 1, paired: bool = False
) -> Comparison:
    """Compare the times of two cells; `tests` is the number of comparisons with one error rate.

    `paired`: the runs at one place were measured in one round, so that a drift of the machine is in
    both of them (Wilcoxon's signed ranks).

    >>> six = [8.0, 8.1, 8.2, 8.3, 8.1, 8.0]
    >>> compare(six, [9.0, 9.1, 9.0, 9.2, 9.1, 9.3]).decision.value
    'faster'
    >>> compare(six[:3], six).decision.value
    'too few runs to tell'
    """
    decidable = min(len(subject), len(other)) >= runs_needed(tests, paired=paired)
    test = signed_ranks_p if paired else mann_whitney_p
    p = min(1.0, tests * test(subject, other)) if decidable else None
    return Comparison(tuple(subject), tuple(other), p, tests, paired)


def runs_needed(tests: int, *, paired: bool = False) -> int:
    """Return the runs per cell from which all of these comparisons can be significant.

    With n and n runs the smallest p is 2 / C(2n, n), with n pairs 2 / 2^n.

    >>> [runs_needed(tests) for tests in (1, 3, 6, 10)]
    [4, 5, 5, 6]
    >>> [runs_needed(tests, paired=True) for tests in (1, 3, 6, 10)]
    [6, 7, 8, 9]
    """
    runs = LEAST_RUNS
    while tests * 2 / (2**runs if paired else comb(2 * runs, runs)) > 1 - CONFIDENCE:
        runs += 1
    return runs


def compare_all(
    samples: Sequence[Sequence[float]], *, paired: bool = False
) -> dict[tuple[int, int], Comparison]:
    """Compare every two of some cells, by their indices (i, j), with Holm's correction.

    The chance of any false difference is at most 5 % for all of them together, and so also for
    comparisons with a cell that is chosen from the same times, as the fastest is. Holm, 1979.
    """
    pairs = [(i, j) for i, j in product(range(len(samples)), repeat=2) if i < j]
    tests = len(pairs)
    single = {(i, j): compare(samples[i], samples[j], paired=paired) for i, j in pairs}
    tested = sorted((c.p, pair) for pair, c in single.items() if c.p is not None)
    corrected = {}
    largest = 0.0
    for place, (p, pair) in enumerate(tested):
        largest = max(largest, min(1.0, (tests - place) * p))
        corrected[pair] = largest
    both = {}
    for (i, j), comparison in single.items():
        decidable = min(map(len, comparison[:2])) >= runs_needed(tests, paired=paired)
        p_holm = corrected.get((i, j)) if decidable else None
        both[i, j] = comparison._replace(p=p_holm, tests=tests)
        both[j, i] = Comparison(comparison.other, comparison.subject, p_holm, tests, paired)
    return both


def mann_whitney_p(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the two-sided p of the Mann-Whitney test, ties by mean ranks.

    The distribution is that of the rank sum over all C(n + m, n) assignments of the ranks to the
    two cells; above `EXACT_RUNS` the normal distribution with its variance (ties count) takes its
    place. Mann & Whitney, 1947.

    >>> mann_whitney_p([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]) == 2 / 70
    True
    >>> mann_whitney_p([1.0, 2.0], [1.0, 2.0])
    1.0
    """
    doubled = _doubled_ranks([*first, *second])
    observed = sum(doubled[: len(first)])
    # all in integers: twice the rank sum times the number of runs
    total = len(doubled)
    center = len(first) * sum(doubled)
    far = abs(observed * total - center)
    if total > EXACT_RUNS:
        variance_of_sum = len(first) * len(second) * variance(doubled) / total
        return _normal_p(far / total, variance_of_sum)
    counts = _rank_sums(tuple(sorted(doubled)), len(first))
    extreme = sum(count for at, count in counts.items() if abs(at * total - center) >= far)
    return extreme / comb(total, len(first))


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
    doubled = _doubled_ranks([max(ratio, 1 / ratio) for ratio in ratios])
    total = sum(doubled)
    observed = sum(rank for rank, ratio in zip(doubled, ratios, strict=True) if ratio > 1)
    far = abs(2 * observed - total)
    if 2 * len(doubled) > EXACT_RUNS:
        return _normal_p(far / 2, sum(rank**2 for rank in doubled) / 4)
    counts = _signed_sums(tuple(sorted(doubled)))
    extreme = sum(count for at, count in enumerate(counts) if abs(2 * at - total) >= far)
    return extreme / (1 << len(doubled))


def _normal_p(far: float, variance_of_sum: float) -> float:
    """Return how often a normal sum of doubled ranks is so far from its mean, to either side.

    The sums are 2 apart, so 1 is taken off (continuity).
    """
    if not variance_of_sum:
        return 1.0
    return 2 * NormalDist().cdf(-max(0.0, far - 1) / sqrt(variance_of_sum))


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
        return _normal_interval_rank(mean, variance_of_sum)
    counts = _signed_sums(tuple(range(1, pairs + 1)))
    k, tail = 0, 0
    while 2 * (tail + counts[k]) / 2**pairs <= 1 - CONFIDENCE:
        tail += counts[k]
        k += 1
    return k, tail / 2**pairs


def _normal_interval_rank(mean: float, variance_of_rank: float) -> tuple[int, float]:
    """Return the largest k with 2 P(X <= k - 1) <= 5 % of a normal X of whole steps, and P."""
    normal = NormalDist(mean, sqrt(variance_of_rank))
    k = floor(normal.inv_cdf((1 - CONFIDENCE) / 2) + 0.5)
    return k, normal.cdf(k - 0.5)


def _doubled_ranks(values: Sequence[float]) -> list[int]:
    """Return twice the rank of each value, from 1; equal values share their mean rank."""
    ordered = sorted(values)
    return [bisect_left(ordered, value) + bisect_right(ordered, value) + 1 for value in values]


@cache
def _rank_sums(doubled_ranks: tuple[int, ...], chosen: int) -> dict[int, int]:
    """Return how many choices of so many ranks have each sum.

    They are the coefficients of polynomials, one per number of chosen ranks. Each polynomial is one
    integer with a field of bits per coefficient, so that adding a rank is a shift and an addition
    (Kronecker substitution).
    """
    field = len(doubled_ranks) // 8 + 1  # bytes: no count exceeds 2^(number of ranks)
    sums = [1] + [0] * chosen
    for rank in doubled_ranks:
        for size in range(chosen, 0, -1):
            sums[size] += sums[size - 1] << (8 * field * rank)
    content = sums[chosen].to_bytes((sum(doubled_ranks) + 1) * field, "little")
    parts = (content[at : at + field] for at in range(0, len(content), field))
    counts = (int.from_bytes(part, "little") for part in parts)
    return {total: count for total, count in enumerate(counts) if count}


def hodges_lehmann(subject: Sequence[float], other: Sequence[float]) -> Ratio:
    """Return the median of all pairwise ratios subject / other, with its interval.

    The interval contains exactly those ratios that the Mann-Whitney test does not reject at 5 %
    (without ties): the ratios from the k-th smallest to the k-th largest, where
    2 P(U <= k - 1) <= 5 %. Hodges & Lehmann, 1963.

    >>> hodges_lehmann([2.0, 2.0, 2.0, 2.0], [1.0, 1.0, 1.0, 1.0]).estimate
    2.0
    """
    ratios = sorted(above / below for above, below in product(subject, other))
    return Ratio(median(ratios), _ratio_interval(ratios, len(subject), len(other)))


def _ratio_interval(ratios: Sequence[float], first: int, second: int) -> Interval | None:
    """Return the narrowest symmetric interval of sorted ratios that covers 95 %."""
    if min(first, second) < LEAST_RUNS:
        return None
    k, tail = interval_rank(first, second)
    return Interval(ratios[k - 1], ratios[-k], 1 - 2 * tail)


@cache
def interval_rank(first: int, second: int) -> tuple[int, float]:
    """Return k and P(U <= k - 1) of the interval of ratios: from the k-th smallest to the largest.

    Needs 4 runs of each cell.

    >>> interval_rank(4, 4) == (1, 1 / 70)
    True
    """
    if first + second > EXACT_RUNS:
        mean = first * second / 2
        return _normal_interval_rank(mean, first * second * (first + second + 1) / 12)
    choices = comb(first + second, first)
    counts = _rank_sums(tuple(range(1, first + second + 1)), first)
    least_sum = first * (first + 1) // 2  # U = 0
    k, tail = 0, 0
    while 2 * (more := tail + counts[least_sum + k]) / choices <= 1 - CONFIDENCE:
        k, tail = k + 1, more
    return k, tail / choices


def has_largest(parts: Mapping[T, float], error: float) -> bool:
    """Return whether the largest of some parts is larger than every other one at 95 %.

    `error` is the standard error of a part, in its unit: parts of a speedup s are known to
    s x hypot(e1, e2) by the errors of the two times (`Row.error`).

    >>> has_largest({"exchange": 0.4, "waiting": 0.1}, 0.1), has_largest({"exchange": 0.4}, 0.1)
    (True, True)
    >>> has_largest({"exchange": 0.4, "waiting": 0.2}, 0.1)
    False
    """
    largest, *smaller = sorted(parts.values(), reverse=True)
    return not smaller or largest - smaller[0] > ERRORS * sqrt(2) * error


POWER = 0.8
"""How often a difference of the smallest shown size is called a difference."""

MOST_RUNS = 50
"""The most runs that are suggested."""


def scatter(*samples: Sequence[float]) -> float | None:
    """Return the standard deviation of the logarithms of times, pooled over cells.

    None if no cell has two runs.

    >>> scatter([1.0], [1.0]) is None, round(scatter([1.0, 1.02], [2.0, 2.04]), 3)
    (True, 0.014)
    """
    several = [[log(time_s) for time_s in sample] for sample in samples if len(sample) > 1]
    freedom = sum(len(logs) - 1 for logs in several)
    if not freedom:
        return None
    return sqrt(sum((len(logs) - 1) * variance(logs) for logs in several) / freedom)


def runs_to_exclude(difference: float, noise: float) -> int | None:
    """Return the runs of each cell whose interval excludes a ratio that far away; None above 50.

    So many of the bootstrap intervals of the ratio of two medians do as the power is. The error of
    the median of n normal values is sqrt(pi / 2n) times theirs.

    >>> [runs_to_exclude(0.05, noise) for noise in (0.01, 0.02, 0.05)], runs_to_exclude(0.01, 0.05)
    ([4, 5, 26], None)
    """
    normal = NormalDist()
    errors = normal.inv_cdf((1 + CONFIDENCE) / 2) + normal.inv_cdf(POWER)
    runs = max(LEAST_RUNS, ceil(pi * (errors * noise / log(1 + difference)) ** 2))
    return runs if runs <= MOST_RUNS else None
