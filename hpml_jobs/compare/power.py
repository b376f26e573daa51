"""What so many runs of two cells can show: the power of the exact test.

The derivations are in docs/formulas.md.
"""

from functools import cache
from itertools import product
from math import exp, log, pi, sqrt
from random import Random
from statistics import NormalDist

from hpml_jobs.results.decision import (
    LEAST_GAP,
    LEAST_RUNS,
    MOST_RUNS,
    POWER,
    interval_rank,
)

SIMULATIONS = 1_000

SIMULATED_RUNS = 12
"""Runs up to which the test is simulated; beyond, its shift follows the standard error."""


def smallest_difference(
    subject_runs: int, other_runs: int, noise: float
) -> float | None:
    """Return the true difference, as a share, that so many runs show with a power of 80 %.

    `noise` is the scatter of their logarithms. None below 4 runs, which show nothing.

    >>> smallest_difference(3, 6, 0.02) is None
    True
    >>> [round(100 * smallest_difference(n, n, 0.02), 1) for n in (4, 6, 12)]
    [5.9, 3.9, 2.7]
    """
    if min(subject_runs, other_runs) < LEAST_RUNS:
        return None
    error = noise * sqrt(pi / 3 * _variance(subject_runs, other_runs))
    above_gap = log(1 + LEAST_GAP) + NormalDist().inv_cdf(POWER) * error
    return exp(max(above_gap, noise * significant_shift(subject_runs, other_runs))) - 1


def runs_to_show(difference: float, noise: float) -> int | None:
    """Return the runs of each cell that show a difference with a power of 80 %; None above 50.

    >>> [runs_to_show(0.05, noise) for noise in (0.01, 0.02, 0.05)], runs_to_show(0.05, 0.5)
    ([4, 5, 20], None)
    """
    for runs in range(LEAST_RUNS, MOST_RUNS + 1):
        smallest = smallest_difference(runs, runs, noise)
        if smallest is not None and smallest <= difference:
            return runs
    return None


@cache
def significant_shift(first: int, second: int) -> float:
    """Return the shift, in standard deviations, that is significant with a power of 80 %.

    The test rejects equal normal samples that are shifted by d if d exceeds their k-th smallest
    pairwise difference with its sign changed; the 80th percentile of that is the shift. Seeded.
    """
    simulated = (min(first, SIMULATED_RUNS), min(second, SIMULATED_RUNS))
    if simulated != (first, second):
        growth = _variance(first, second) / _variance(*simulated)
        return significant_shift(*simulated) * sqrt(growth)
    random = Random(100 * first + second)  # noqa: S311 - no secret in it
    k, _ = interval_rank(first, second)
    shifts = sorted(_needed_shift(random, first, second, k) for _ in range(SIMULATIONS))
    return shifts[round(POWER * SIMULATIONS) - 1]


def _variance(first: int, second: int) -> float:
    return 1 / first + 1 / second


def _needed_shift(random: Random, first: int, second: int, k: int) -> float:
    """Return the shift from which the test tells two samples of one distribution apart."""
    subject = [random.gauss(0, 1) for _ in range(first)]
    other = [random.gauss(0, 1) for _ in range(second)]
    return -sorted(above - below for above, below in product(subject, other))[k - 1]
