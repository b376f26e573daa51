"""Simulated repeats: intervals cover what they claim, and decisions are rarely wrong.

The functions are those of tests/benchmarks/decisions.py, which prints the figures of
docs/measured.md. All are seeded: a result is the same in every run. A band is four standard
deviations of a share.
"""

import importlib.util
from math import sqrt
from pathlib import Path

import pytest

from hpml_jobs.results.statistics import coverage_of_range
from tests.benchmarks.intervals import interval

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "decisions.py"
_spec = importlib.util.spec_from_file_location("decisions", BENCHMARK)
decisions = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(decisions)

SIMULATIONS = [400, pytest.param(20_000, marks=pytest.mark.long)]
BOOTSTRAPS = [40, pytest.param(2_500, marks=pytest.mark.long)]
NUMBERS = (2, 3, 6, 9, 12)


def band(share, simulations):
    return 4 * sqrt(share * (1 - share) / simulations)


@pytest.mark.parametrize("simulations", SIMULATIONS)
def test_interval_of_median_covers_what_it_claims(simulations):
    for number in NUMBERS:
        claimed = interval(range(number)).coverage
        covered = decisions.interval_coverage(number, simulations)
        assert covered == pytest.approx(claimed, abs=band(claimed, simulations)), number


@pytest.mark.parametrize("simulations", BOOTSTRAPS)
def test_bootstrap_interval_covers_at_least_its_claim(simulations):
    for number in (2, 3, 6):
        claimed = min(0.95, coverage_of_range(number))
        covered = decisions.bootstrap_coverage(number, simulations)
        assert covered >= claimed - band(claimed, simulations), number


@pytest.mark.parametrize("simulations", SIMULATIONS)
def test_equal_cells_differ_in_5_percent_at_most(simulations):
    for number in (4, 6, 9):
        for noise in (0.02, 0.05):
            rate = decisions.decision_rate(number, noise, 0.0, simulations)
            assert rate <= 0.05 + band(0.05, simulations), (number, noise)
    disturbed = decisions.decision_rate(6, 0.03, 0.0, simulations, is_disturbed=True)
    assert disturbed <= 0.05 + band(0.05, simulations)


@pytest.mark.parametrize("simulations", SIMULATIONS)
def test_true_difference_of_10_percent_is_found_at_6_runs(simulations):
    """Disjoint ranges found 25 %, where an exact test finds three quarters and more."""
    rate = decisions.decision_rate(6, 0.05, 0.1, simulations)
    assert rate >= 0.78 - band(0.78, simulations)
    assert decisions.decision_rate(6, 0.02, 0.05, simulations) >= 0.9


def test_three_runs_never_decide():
    assert decisions.decision_rate(3, 0.02, 0.5, 50) == 0.0


@pytest.mark.parametrize(
    "simulations", [100, pytest.param(1_000, marks=pytest.mark.long)]
)
def test_scatter_hardly_ever_fails_the_efficiency(simulations):
    """Judged by run, 79 % of these studies had a cell that failed."""
    assert decisions.false_failures(0.97, 0.05, 6, 4, simulations) < 0.02
