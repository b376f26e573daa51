"""Resamples of the runs of two cells, and medians of the runs that each of them draws."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from hpml_jobs.core.collective_times import Array, Seconds

RESAMPLES = 2_000


class DrawnRuns(NamedTuple):
    """The numbers of the runs of a row and of its reference in each resample, (draws, runs)."""

    of_row: Array
    of_reference: Array


@cache
def draws_of(runs: int, reference_runs: int) -> DrawnRuns:
    """Return 2,000 seeded resamples of two cells with so many runs."""
    # this generator never changes in numpy, and draws the numbers of random.Random
    random = np.random.RandomState([runs * 1_000 + reference_runs])
    sizes = [runs, reference_runs]
    numbers = random.random_sample((RESAMPLES, sum(sizes)))
    numbers *= np.repeat(sizes, sizes)
    of_row, of_reference = np.hsplit(numbers.astype(np.int16), [runs])
    return DrawnRuns(of_row, of_reference)


def drawn_ratios(
    numerator: Sequence[float], denominator: Sequence[float]
) -> list[float]:
    """Return median(numerator) / median(denominator) of each resample."""
    draws = draws_of(len(numerator), len(denominator))
    above = _medians(np.array(numerator), draws.of_row)
    below = _medians(np.array(denominator), draws.of_reference)
    ratios: list[float] = (above / below).tolist()
    return ratios


def drawn_medians(
    runs: Sequence[Mapping[Any, float]], draws: Array
) -> dict[Any, Seconds]:
    """Return the median of each time over the drawn runs that have it, by draw; NaN without one.

    >>> drawn_medians([{"epoch": 1.0}, {"epoch": 3.0}], np.array([[0, 1], [1, 1]]))
    {'epoch': array([2., 3.])}
    """
    names = dict.fromkeys(name for run in runs for name in run)
    of_runs = {
        name: np.array([run.get(name, np.nan) for run in runs]) for name in names
    }
    return {name: _medians(values, draws) for name, values in of_runs.items()}


def _medians(values: Seconds, draws: Array) -> Seconds:
    """Return the median of the known values of each draw, (draws, runs); NaN if none is known."""
    ordered = np.sort(values)  # NaN is last
    # small integers are sorted in a fifth of the time of floats
    ranks = np.searchsorted(ordered, values).astype(np.int16)
    drawn = np.sort(ranks.take(draws), axis=1)
    known = (drawn < np.isfinite(values).sum()).sum(axis=1, keepdims=True)
    lower = np.take_along_axis(drawn, (known - 1) // 2, axis=1)
    upper = np.take_along_axis(drawn, known // 2, axis=1)
    medians: Seconds = ((ordered[lower] + ordered[upper]) / 2)[:, 0]
    return medians
