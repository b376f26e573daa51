"""Least squares with coefficients of zero or more, against known truths."""

import itertools
import random

import pytest

from hpml_jobs.extras.predict.least_squares import fit

ROWS = [(1.0, n, (n - 1) / n, n * n) for n in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)]


def at(coefficients, row):
    return sum(c * x for c, x in zip(coefficients, row, strict=True))


@pytest.mark.parametrize(
    "truth",
    [(3.0, 0.0, 0.5, 0.0), (0.0, 2.0, 0.0, 0.1), (1.0, 2.0, 3.0, 4.0), (0.0,) * 4],
)
def test_fit_of_exact_values_returns_their_coefficients(truth):
    values = [at(truth, row) for row in ROWS]
    assert fit(ROWS, values).coefficients == pytest.approx(truth, abs=1e-9)


def test_fit_is_never_worse_than_a_point_of_the_grid():
    generator = random.Random(5)
    rows = [(1.0, generator.random(), generator.random()) for _ in range(7)]
    values = [generator.gauss(0, 1) for _ in rows]
    best = fit(rows, values)
    assert min(best.coefficients) >= 0
    for point in itertools.product((0.0, 0.1, 0.3, 0.9), repeat=3):
        others = sum(
            (at(point, row) - y) ** 2 for row, y in zip(rows, values, strict=True)
        )
        assert best.squares <= others + 1e-12


def test_fit_of_dependent_columns_uses_one_of_them():
    fitted = fit([(1.0, 2.0), (2.0, 4.0)], [2.0, 4.0])
    assert fitted.at((3.0, 6.0)) == pytest.approx(6.0)
    assert min(fitted.coefficients) == 0


def test_fit_follows_the_values_with_weight():
    values = [1.0, 3.0]
    assert fit([(1.0,), (1.0,)], values, [1.0, 1e6]).coefficients == pytest.approx(
        (3.0,)
    )


def test_fit_without_rows_or_with_five_columns_is_refused():
    for rows in ([], [(1.0,) * 5]):
        with pytest.raises(ValueError, match="columns"):
            fit(rows, [1.0] * len(rows))
