"""Repeats: what intervals cover, which differences they refuse, the medians of a draw."""

from itertools import combinations
from math import nan
from random import Random

import pytest

from hpml_jobs.results.decision import (
    compare,
    hodges_lehmann,
    mann_whitney_p,
)
from hpml_jobs.results.gap.parts import medians_of
from hpml_jobs.results.statistics import (
    drawn_medians,
    draws_of,
    ratio_interval,
)
from tests.benchmarks.intervals import interval


def test_interval_of_one_run_is_none():
    assert interval([8.0]) is None


@pytest.mark.parametrize(
    ("runs", "coverage"),
    [(2, 0.5), (5, 0.9375), (8, 0.9921875)],
)
def test_interval_of_few_runs_is_range_with_its_coverage(runs, coverage):
    values = [10.0 + 0.1 * run for run in range(runs)]
    assert interval(values[::-1]) == (values[0], values[-1], coverage)


def test_interval_of_many_runs_is_narrowest_covering_95():
    # 1 - 2 (1 + 9) / 2^9 = 0.961; 1 - 2 (1 + 12 + 66) / 2^12 = 0.9614; with 10 of 20: 0.9586
    assert interval(range(9)) == (1, 7, 1 - 20 / 512)
    assert interval(range(12)) == (2, 9, 1 - 158 / 4096)
    low, high, coverage = interval(range(20))
    assert (low, high) == (5, 14)
    assert coverage == pytest.approx(0.9586, abs=1e-4)


def test_interval_keeps_outliers():
    assert interval((10.0, 10.1, 12.5, 13.0, 10.0))[:2] == (10.0, 13.0)


def test_bootstrap_is_seeded_and_contains_ratio_of_medians():
    one, four = (10.0, 10.2, 10.4, 10.1, 10.3, 9.9), (4.0, 4.1, 4.2, 4.05, 4.0, 4.3)
    low, high, coverage = ratio_interval(one, four)
    assert low <= 10.15 / 4.075 <= high
    assert 9.9 / 4.3 <= low < high <= 10.4 / 4.0
    assert coverage == 0.95
    ratio_interval.cache_clear()
    assert ratio_interval(one, four) == (low, high, coverage)


def test_bootstrap_needs_two_runs_of_each():
    assert (
        ratio_interval((10.0,), (5.0, 5.1))
        is ratio_interval((10.0, 9.0), (5.0,))
        is None
    )


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (
            [8.0, 8.1, 8.2, 8.3, 8.1, 8.2],
            [8.2, 8.1, 8.4, 8.3, 8.2, 8.2],
            "no significant difference",
        ),
        ([8.0] * 5 + [8.05], [8.1] * 5 + [8.5], "less than 2 % apart"),
        ([8.0] * 5 + [8.2], [8.3] * 5 + [8.6], "faster"),
        ([9.0] * 6, [8.0] * 6, "slower"),
        ([9.0] * 3, [8.0] * 6, "too few runs to tell"),
    ],
)
def test_decision_of_two_cells_by_mann_whitney(one, other, expected):
    assert compare(one, other).decision.value == expected


def test_mann_whitney_p_equals_count_of_all_assignments():
    random = Random(7)
    for _ in range(40):
        first = [random.randint(1, 6) for _ in range(random.randint(2, 6))]
        second = [random.randint(1, 8) for _ in range(random.randint(2, 6))]
        assert mann_whitney_p(first, second) == pytest.approx(counted_p(first, second))


def counted_p(first, second):
    """The share of all choices of len(first) ranks whose sum is as far from the mean."""
    values = [*first, *second]
    ranks = [sum(v < x for v in values) + (values.count(x) + 1) / 2 for x in values]
    mean = len(first) * sum(ranks) / len(ranks)
    far = abs(sum(ranks[: len(first)]) - mean)
    sums = [abs(sum(choice) - mean) for choice in combinations(ranks, len(first))]
    return sum(distance >= far - 1e-9 for distance in sums) / len(sums)


def test_hodges_lehmann_interval_excludes_1_if_test_rejects():
    random = Random(8)
    for _ in range(100):
        first = [random.lognormvariate(0.0, 0.05) for _ in range(random.randint(4, 9))]
        second = [
            random.lognormvariate(0.05, 0.05) for _ in range(random.randint(4, 9))
        ]
        low, high, coverage = hodges_lehmann((*first,), (*second,)).interval
        assert (low <= 1 <= high) is (mann_whitney_p(first, second) > 0.05)
        assert coverage >= 0.95


RUNS = [
    {"epoch": 8.0, "exchange": 1.25, "waiting": 0.0},
    {"epoch": 8.3, "waiting": 0.5},
    {"epoch": 9.1, "exchange": 0.75, "waiting": 0.25},
    {"epoch": 9.7, "exchange": 1.5, "loader": 0.1},
]


@pytest.mark.parametrize("number", [2, 3, 4])
def test_medians_of_a_draw_are_those_of_its_runs(number):
    for draws in draws_of(number, 2):
        medians = drawn_medians(RUNS[: draws.shape[1]], draws)
        for position, draw in enumerate(draws):
            known = {name: of_draws[position] for name, of_draws in medians.items()}
            expected = medians_of([RUNS[run] for run in draw])
            assert known == pytest.approx(
                dict.fromkeys(known, nan) | expected, nan_ok=True, abs=0
            )
