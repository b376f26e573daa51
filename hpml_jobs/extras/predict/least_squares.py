"""Least squares with coefficients that are zero or more, exact for a few coefficients."""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

MOST_COLUMNS = 4
"""Coefficients of a fit: 2^4 sets of them are tried."""

_NEGLIGIBLE = 1e-10
"""A column that is a sum of others but for this share of its length adds nothing."""


class Fit(NamedTuple):
    """Coefficients of zero or more, and the weighted sum of squared residuals."""

    coefficients: tuple[float, ...]
    squares: float

    def at(self, row: Sequence[float]) -> float:
        """Return the fitted value of a row."""
        return math.fsum(c * x for c, x in zip(self.coefficients, row, strict=True))


def fit(
    rows: Sequence[Sequence[float]],
    values: Sequence[float],
    weights: Sequence[float] | None = None,
) -> Fit:
    """Return the coefficients c >= 0 that minimise the sum of (weight x (row . c - value))^2.

    Every set of columns is solved without constraints; of the solutions whose coefficients are all
    zero or more the one with the smallest sum is the constrained optimum (Karush-Kuhn-Tucker), of
    equal ones that with the fewest columns. Rows may be fewer than columns.

    >>> [round(c, 9) for c in fit([(1, 0), (1, 1), (1, 2)], [1.0, 3.0, 5.0]).coefficients]
    [1.0, 2.0]
    >>> [round(c, 9) for c in fit([(1, 0), (1, 1), (1, 2)], [5.0, 3.0, 1.0]).coefficients]
    [3.0, 0.0]

    Raises:
        ValueError: there is no row, or there are more than four columns.
    """
    if not rows:
        raise ValueError("0 rows of 0 columns")
    if len(rows[0]) > MOST_COLUMNS:
        raise ValueError(f"{len(rows)} rows of {len(rows[0])} columns")
    weights = weights or [1.0] * len(rows)
    right = [w * value for w, value in zip(weights, values, strict=True)]
    columns = []
    for column in zip(*rows, strict=True):
        columns.append([w * value for w, value in zip(weights, column, strict=True)])
    best = Fit((0.0,) * len(columns), _dot(right, right))
    tolerance = _NEGLIGIBLE**2 * max(best.squares, 1e-300)
    for size in range(1, len(columns) + 1):
        for chosen in itertools.combinations(range(len(columns)), size):
            of_chosen = _fit_of(chosen, columns, right)
            if of_chosen is not None and of_chosen.squares < best.squares - tolerance:
                best = of_chosen
    return best


def _fit_of(
    chosen: Sequence[int], columns: Sequence[Sequence[float]], right: Sequence[float]
) -> Fit | None:
    """Return the fit of some columns; None if they are dependent or need a negative one."""
    solution = _solved([columns[j] for j in chosen], right)
    if solution is None or min(solution) < 0:
        return None
    coefficients = [0.0] * len(columns)
    for j, value in zip(chosen, solution, strict=True):
        coefficients[j] = value
    return Fit(tuple(coefficients), _squares(columns, coefficients, right))


def _squares(
    columns: Sequence[Sequence[float]],
    coefficients: Sequence[float],
    right: Sequence[float],
) -> float:
    """Return the sum of the squared residuals."""
    residuals = []
    for row, value in zip(zip(*columns, strict=True), right, strict=True):
        fitted = math.fsum(c * x for c, x in zip(coefficients, row, strict=True))
        residuals.append(fitted - value)
    return math.fsum(r * r for r in residuals)


def _solved(
    columns: Sequence[Sequence[float]], right: Sequence[float]
) -> list[float] | None:
    """Return the unconstrained solution by modified Gram-Schmidt; None of dependent columns."""
    basis: list[list[float]] = []
    upper: list[list[float]] = []  # upper[j][i]: column j's part along basis vector i
    for column in columns:
        length = math.sqrt(_dot(column, column))
        parts, rest = _split(column, basis)
        left = math.sqrt(_dot(rest, rest))
        if left <= _NEGLIGIBLE * length or length == 0:
            return None
        basis.append([r / left for r in rest])
        upper.append([*parts, left])
    along, _ = _split(right, basis)
    solution = [0.0] * len(columns)
    for j in reversed(range(len(columns))):
        of_later_columns = math.fsum(
            upper[k][j] * solution[k] for k in range(j + 1, len(columns))
        )
        solution[j] = (along[j] - of_later_columns) / upper[j][j]
    return solution


def _split(
    vector: Sequence[float], basis: Sequence[Sequence[float]]
) -> tuple[list[float], list[float]]:
    """Return the parts of a vector along those of a basis, and the rest of it."""
    parts, rest = [], list(vector)
    for direction in basis:
        part = _dot(direction, rest)
        parts.append(part)
        rest = [r - part * v for r, v in zip(rest, direction, strict=True)]
    return parts, rest


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return math.fsum(a * b for a, b in zip(left, right, strict=True))
