"""Scaling laws of the speedup, and their fits to measured points: descriptions, not forecasts.

`n` is the growth in GPUs over the reference, N / g; a point is `(n, speedup)` with n above 1. A fit
minimizes the squares of (law / measured - 1), of the speedup or of its inverse, whichever is linear
in the coefficients. No coefficient is below zero, and a share is at most one.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from hpml_jobs.predict.least_squares import fit

Points: TypeAlias = Sequence[tuple[float, float]]

EXACT = 1e-9
"""The residual of a law that passes through its points, but for rounding."""


def amdahl(serial_share: float, n: float) -> float:
    """Return the speedup of fixed work: 1 / (s + (1 - s) / n). Amdahl, AFIPS 1967.

    s is the share of the reference's time that does not become shorter.

    >>> round(amdahl(0.05, 8), 3)
    5.926
    """
    return 1 / (serial_share + (1 - serial_share) / n)


def gustafson(serial_share: float, n: float) -> float:
    """Return the scaled speedup of work that grows with n: n - s (n - 1). CACM 31(5), 1988.

    s is the serial share of the time on n.

    >>> round(gustafson(0.05, 8), 3)
    7.65
    """
    return n - serial_share * (n - 1)


def usl(contention: float, coherence: float, n: float) -> float:
    """Return the speedup by the Universal Scalability Law: n / (1 + a (n - 1) + b n (n - 1)).

    Gunther, Guerrilla Capacity Planning, Springer 2007, chapter 4. Contention a is waiting for what
    is shared, coherence b the exchange of every GPU with every other; with b = 0 it is Amdahl's.

    >>> round(usl(0.05, 0.0, 8), 3), round(usl(0.05, 0.01, 8), 3)
    (5.926, 4.188)
    """
    return n / (1 + contention * (n - 1) + coherence * n * (n - 1))


class LawFit(NamedTuple):
    """The coefficients of a law, and its residual.

    `residual` is the root mean square of (law / measured - 1) of the speedup; None where the law
    passes through all points because it has as many coefficients.
    """

    coefficients: tuple[float, ...]
    residual: float | None


def fit_amdahl(points: Points) -> LawFit | None:
    """Return the serial share by Amdahl's law; None without a point.

    >>> law = fit_amdahl([(n, amdahl(0.05, n)) for n in (2, 4, 8)])
    >>> round(law.coefficients[0], 9), round(law.residual, 9)
    (0.05, 0.0)
    """
    rows = [((s * (n - 1) / n,), 1 - s / n) for n, s in points]
    return _fitted(points, rows, amdahl, at_most=1.0)


def fit_gustafson(points: Points) -> LawFit | None:
    """Return the serial share by Gustafson's law; None without a point.

    >>> law = fit_gustafson([(n, gustafson(0.05, n)) for n in (2, 4)])
    >>> round(law.coefficients[0], 9), round(law.residual, 9)
    (0.05, 0.0)
    """
    rows = [(((n - 1) / s,), n / s - 1) for n, s in points]
    return _fitted(points, rows, gustafson, at_most=1.0)


def fit_usl(points: Points) -> LawFit | None:
    """Return contention and coherence by the Universal Scalability Law; None below two points.

    >>> law = fit_usl([(n, usl(0.05, 0.01, n)) for n in (2, 4, 8)])
    >>> [round(c, 9) for c in law.coefficients], round(law.residual, 9)
    ([0.05, 0.01], 0.0)
    """
    rows = [((s * (n - 1) / n, s * (n - 1)), 1 - s / n) for n, s in points]
    return _fitted(points, rows, usl)


def _fitted(
    points: Points,
    rows: Sequence[tuple[tuple[float, ...], float]],
    law: Callable[..., float],
    at_most: float = float("inf"),
) -> LawFit | None:
    """Return the law whose coefficients fit the rows; None with fewer rows than coefficients."""
    if not rows or len(rows) < len(rows[0][0]):
        return None
    best = fit([row for row, _ in rows], [value for _, value in rows])
    coefficients = tuple(min(at_most, c) for c in best.coefficients)
    errors = [law(*coefficients, n) / speedup - 1 for n, speedup in points]
    residual = float((sum(e * e for e in errors) / len(errors)) ** 0.5)
    is_exact = len(points) == len(coefficients) and residual < EXACT
    return LawFit(coefficients, None if is_exact else residual)
