"""Intervals of repeats: what they cover, and which differences they refuse to call real."""

import pytest

from hpml_jobs.report.merge.statistics import Sample, differ, interval, ratio_interval
from hpml_jobs.report.text.comparisons import compare_runs


def test_interval_of_one_run_is_none():
    assert interval([8.0]) is None
    assert Sample((8.0,)).spread is None


@pytest.mark.parametrize(
    ("runs", "coverage"), [(2, 0.5), (3, 0.75), (5, 0.9375), (6, 0.96875), (8, 0.9921875)]
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


def test_interval_keeps_outliers_and_spread_shows_them():
    steady = Sample((10.0, 10.1, 10.2, 10.1, 10.0))
    shaken = Sample((10.0, 10.1, 12.5, 13.0, 10.0))
    assert steady.spread == pytest.approx(0.1 / 10.1)
    assert shaken.interval[:2] == (10.0, 13.0)
    assert shaken.spread == pytest.approx(2.5 / 10.1)


def test_bootstrap_is_seeded_and_contains_ratio_of_medians():
    one, four = (10.0, 10.2, 10.4, 10.1, 10.3, 9.9), (4.0, 4.1, 4.2, 4.05, 4.0, 4.3)
    low, high, coverage = ratio_interval(one, four)
    assert low <= 10.15 / 4.075 <= high
    assert 9.9 / 4.3 <= low < high <= 10.4 / 4.0
    assert coverage == 0.95
    ratio_interval.cache_clear()
    assert ratio_interval(one, four) == (low, high, coverage)


def test_bootstrap_needs_two_runs_of_each():
    assert ratio_interval((10.0,), (5.0, 5.1)) is ratio_interval((10.0, 9.0), (5.0,)) is None


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([8.0] * 5 + [8.2], [8.2] * 5 + [8.5], "no significant difference"),  # they touch
        (
            [8.0] * 5 + [8.05],
            [8.1] * 5 + [8.5],
            "no significant difference",
        ),  # disjoint, but 1.25 % apart
        ([8.0] * 5 + [8.2], [8.3] * 5 + [8.6], "faster"),  # disjoint, 3.75 % apart
        ([9.0] * 6, [8.0] * 6, "slower"),
        ([9.0] * 5, [8.0] * 6, "slower (5 runs: 93.8 % confidence)"),
        ([9.0], [8.0] * 6, "single run, not comparable"),
    ],
)
def test_difference_within_noise_is_not_significant(one, other, expected):
    assert compare_runs(one, other) == expected


def test_difference_is_symmetric():
    assert differ([8.0, 8.1], [9.0, 9.1]) is differ([9.0, 9.1], [8.0, 8.1]) is True
