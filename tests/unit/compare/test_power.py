"""Simulated repeats show the smallest difference as often as it says."""

import pytest

from hpml_jobs.compare.power import smallest_difference
from tests.unit.report.frame.test_simulations import SIMULATIONS, band, decisions


@pytest.mark.parametrize("simulations", SIMULATIONS)
def test_smallest_difference_is_shown_in_80_percent(simulations):
    for number in (4, 6, 12):
        for noise in (0.005, 0.03):
            gap = smallest_difference(number, number, noise)
            rate = decisions.decision_rate(number, noise, gap, simulations)
            assert rate == pytest.approx(0.8, abs=0.03 + band(0.8, simulations)), (
                number,
                noise,
            )
