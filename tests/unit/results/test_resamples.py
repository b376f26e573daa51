"""Resamples: each draw has the medians of its runs."""

from math import nan

import pytest

from hpml_jobs.results.gap.parts import medians_of
from hpml_jobs.results.resamples import drawn_medians, draws_of

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
