"""Times of messages by their size: pooled over cells, interpolated, and described by two slopes."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from math import exp, log
from statistics import median
from typing import NamedTuple

FIT_MEDIAN_LIMIT = 0.10
FIT_WORST_LIMIT = 0.30
"""Largest residuals of a fit that describes the times: their median, and the worst of them."""

FIT_FROM_BYTES = 64 * 1024
"""Smallest message whose residual counts: the time of smaller ones is startup."""

JUDGED_SIZES = 3
"""Sizes with a residual that counts from which on a fit is said to describe them."""

LEAST_SIZES = 8
"""Sizes that a fit needs: it has four parameters."""


def pooled(cells: Iterable[Mapping[int, float]]) -> dict[int, float]:
    """Return the median over cells of their times, by message bytes.

    >>> pooled([{1024: 1.0}, {1024: 3.0, 4096: 5.0}, {1024: 2.0}])
    {1024: 2.0, 4096: 5.0}
    """
    times_by_size: dict[int, list[float]] = {}
    for times_s in cells:
        for size, time_s in times_s.items():
            if time_s > 0:
                times_by_size.setdefault(size, []).append(time_s)
    return {size: median(times) for size, times in sorted(times_by_size.items())}


def interpolated_s(times_s: Mapping[int, float], message_bytes: int) -> float | None:
    """Return the time of a message by linear interpolation; None outside the measured sizes.

    >>> interpolated_s({100: 1.0, 300: 2.0}, 200), interpolated_s({100: 1.0, 300: 2.0}, 400)
    (1.5, None)
    """
    sizes: Sequence[int] = sorted(times_s)
    if not sizes or not sizes[0] <= message_bytes <= sizes[-1]:
        return None
    index = bisect_left(sizes, message_bytes)
    if sizes[index] == message_bytes:
        return times_s[message_bytes]
    low, high = sizes[index - 1], sizes[index]
    share = (message_bytes - low) / (high - low)
    return times_s[low] + share * (times_s[high] - times_s[low])


class TwoSlopes(NamedTuple):
    """The time of a whole all-reduce by its bytes: a startup, and a slope on each side of a knee.

    `T(s) = startup_s + min(s, knee) x small + max(0, s - knee) x large`, slopes in seconds per
    byte. Residuals are exp(|log(fitted / measured)|) - 1 at messages of 64 KiB and more; None
    with fewer than three such sizes.
    """

    startup_s: float
    small_s_per_byte: float
    large_s_per_byte: float
    knee_bytes: int
    median_residual: float | None = None
    worst_residual: float | None = None

    @property
    def describes(self) -> bool | None:
        """Whether the times follow it: median residual <= 10 %, worst <= 30 %; None: not known."""
        if self.median_residual is None or self.worst_residual is None:
            return None
        return self.median_residual <= FIT_MEDIAN_LIMIT and self.worst_residual <= FIT_WORST_LIMIT

    def time_s(self, message_bytes: float) -> float:
        """Return the time of a message."""
        small, large = _parts(message_bytes, self.knee_bytes)
        return self.startup_s + small * self.small_s_per_byte + large * self.large_s_per_byte


def fit_two_slopes(times_s: Mapping[int, float]) -> TwoSlopes | None:
    """Fit two slopes to {message bytes: seconds} by least squares of the logarithms.

    Every measured size but the two smallest and the two largest is tried as the knee. Errors of
    logarithms weigh a time that is twice as long like one that is half as long, and all sizes
    alike, although they span five orders of magnitude. None with fewer than eight sizes.

    >>> sizes = [2**power for power in range(10, 29, 2)]
    >>> line = TwoSlopes(1e-4, 1e-10, 2.5e-10, 2**20)
    >>> fit = fit_two_slopes({size: line.time_s(size) for size in sizes})
    >>> round(fit.startup_s, 9), fit.knee_bytes == 2**20, fit.describes
    (0.0001, True, True)
    >>> round(1e-9 / fit.small_s_per_byte, 3), round(1e-9 / fit.large_s_per_byte, 3)
    (10.0, 4.0)
    """
    sizes = sorted(size for size, time_s in times_s.items() if time_s > 0)
    if len(sizes) < LEAST_SIZES:
        return None
    fits = [_fit_at(times_s, sizes, knee) for knee in sizes[2:-2]]
    best = min(fits, key=lambda fit: sum(_log_errors(fit, times_s, sizes)))
    errors = [exp(e**0.5) - 1 for e in _log_errors(best, times_s, sizes)]
    judged = [e for size, e in zip(sizes, errors, strict=True) if size >= FIT_FROM_BYTES]
    if len(judged) < JUDGED_SIZES:
        return best
    return best._replace(median_residual=median(judged), worst_residual=max(judged))


def _parts(message_bytes: float, knee_bytes: int) -> tuple[float, float]:
    """Return the bytes below and above the knee."""
    return min(message_bytes, knee_bytes), max(0.0, message_bytes - knee_bytes)


def _log_errors(fit: TwoSlopes, times_s: Mapping[int, float], sizes: Sequence[int]) -> list[float]:
    """Return the squared differences of the logarithms."""
    return [log(fit.time_s(size) / times_s[size]) ** 2 for size in sizes]


def _fit_at(times_s: Mapping[int, float], sizes: Sequence[int], knee: int) -> TwoSlopes:
    """Fit at one knee, by Levenberg-Marquardt in the logarithms of the three parameters.

    Logarithms keep startup and slopes above zero.
    """
    low, middle, high = times_s[sizes[0]], times_s[knee], times_s[sizes[-1]]
    tiny = 1e-3 * low / sizes[-1]
    logs = [
        log(low),
        log(max(tiny, (middle - low) / knee)),
        log(max(tiny, (high - middle) / (sizes[-1] - knee))),
    ]
    damping, error = 1e-3, sum(_log_errors(_from_logs(logs, knee), times_s, sizes))
    for _ in range(200):
        step = _step(logs, knee, times_s, sizes, damping)
        tried = [value + change for value, change in zip(logs, step, strict=True)]
        tried_error = sum(_log_errors(_from_logs(tried, knee), times_s, sizes))
        if tried_error <= error:
            converged = error - tried_error <= 1e-14
            logs, error, damping = tried, tried_error, max(damping / 5, 1e-12)
            if converged:
                break
        else:
            damping *= 5
            if damping > 1e9:
                break
    return _from_logs(logs, knee)


def _from_logs(logs: Sequence[float], knee: int) -> TwoSlopes:
    startup_s, small, large = (exp(max(-200.0, min(50.0, value))) for value in logs)
    return TwoSlopes(startup_s, small, large, knee)


def _step(
    logs: Sequence[float],
    knee: int,
    times_s: Mapping[int, float],
    sizes: Sequence[int],
    damping: float,
) -> list[float]:
    """Return the damped Gauss-Newton step of the three logarithms."""
    fit = _from_logs(logs, knee)
    rows, errors = [], []
    for size in sizes:
        time_s = fit.time_s(size)
        small, large = _parts(size, knee)
        # the share of each term in the fitted time is the derivative of its logarithm
        terms = (fit.startup_s, small * fit.small_s_per_byte, large * fit.large_s_per_byte)
        rows.append([term / time_s for term in terms])
        errors.append(log(times_s[size] / time_s))
    matrix = [[sum(row[i] * row[j] for row in rows) for j in range(3)] for i in range(3)]
    for i in range(3):
        matrix[i][i] += damping * max(matrix[i][i], 1e-9)
    right = [sum(row[i] * error for row, error in zip(rows, errors, strict=True)) for i in range(3)]
    return [max(-2.0, min(2.0, change)) for change in _solved(matrix, right)]


def _solved(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Return the solution of three linear equations, by Cramer's rule."""
    whole = _determinant(matrix)
    solution = []
    for column in range(3):
        replaced = [[right[i] if j == column else matrix[i][j] for j in range(3)] for i in range(3)]
        solution.append(_determinant(replaced) / whole if whole else 0.0)
    return solution


def _determinant(m: Sequence[Sequence[float]]) -> float:
    return (
        m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1])
        - m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0])
        + m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0])
    )
