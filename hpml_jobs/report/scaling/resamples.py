"""Resamples of the runs of two cells, and medians of the runs that each of them draws."""

from collections.abc import Mapping, Sequence
from functools import cache
from math import isnan
from typing import Any, NamedTuple

import numpy as np

from hpml_jobs.core.collective_times import Array, Seconds
from hpml_jobs.core.statistics import bootstrap


class Resamples(NamedTuple):
    """The different draws of the runs of a row and of its reference, with replacement.

    Both are the numbers of the drawn runs, (draws, runs). `numbers` has the draw of each resample.
    """

    of_row: Array
    of_reference: Array
    numbers: list[int]


@cache
def resamples_of(runs: int, reference_runs: int) -> Resamples:
    """Return the resamples of two cells with so many runs.

    Each is of runs of the row and of the reference, independently. Their order does not matter to
    a median, so that most resamples of a few runs are the same draw.

    >>> resamples_of(1, 1).numbers[:3]
    [0, 0, 0]
    """
    drawn = bootstrap(
        range(runs), range(reference_runs), lambda first, second: sorted(first) + sorted(second)
    )
    different, numbers = np.unique(np.array(drawn), axis=0, return_inverse=True)
    return Resamples(different[:, :runs], different[:, runs:], numbers.tolist())


def drawn_medians(runs: Sequence[Mapping[Any, float]], draws: Array) -> list[dict[Any, float]]:
    """Return for each draw the median of each time over the drawn runs that have it.

    >>> drawn_medians([{"epoch": 1.0}, {"epoch": 3.0}], np.array([[0, 1], [1, 1]]))
    [{'epoch': 2.0}, {'epoch': 3.0}]
    """
    of_draws: list[dict[Any, float]] = [{} for _ in draws]
    for name in dict.fromkeys(name for run in runs for name in run):
        values = np.array([run.get(name, np.nan) for run in runs])
        for medians, value in zip(of_draws, _medians(values[draws]), strict=True):
            if not isnan(value):
                medians[name] = value
    return of_draws


def _medians(drawn: Seconds) -> list[float]:
    """Return the median of the known values of each draw, (draws, runs); NaN if none is known."""
    ordered = np.sort(drawn, axis=1)  # NaN is last
    known = np.isfinite(ordered).sum(axis=1, keepdims=True)
    lower = np.take_along_axis(ordered, (known - 1) // 2, axis=1)
    upper = np.take_along_axis(ordered, known // 2, axis=1)
    medians: list[float] = ((lower + upper) / 2)[:, 0].tolist()
    return medians
