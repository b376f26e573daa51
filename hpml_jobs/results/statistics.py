"""Statistics of repeats: errors and intervals of ratios, resamples of two cells."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import exp, log, nan, sqrt
from statistics import NormalDist, fmean, median, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from hpml_jobs.core.measurements import Role
from hpml_jobs.core.outliers import LIKE, unlike
from hpml_jobs.core.record import Record
from hpml_jobs.core.value import cached_on_value
from hpml_jobs.results.disturbance import explains, withheld_share

if TYPE_CHECKING:
    from hpml_jobs.core.collective_times import Array, Seconds

CONFIDENCE = 0.95
ERRORS = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
"""Standard errors to either side of a value within which 95 % of normal errors are: 1.96."""


class Interval(NamedTuple):
    """An interval that contains the true value with probability `coverage`."""

    low: float
    high: float
    coverage: float

    def divided_by(self, number: float) -> "Interval":
        """Return the interval of the value divided by a number above zero."""
        return self._replace(low=self.low / number, high=self.high / number)


def coverage_of_range(runs: int) -> float:
    """Return the confidence that [min, max] of n runs contains the true median: 1 - 2^(1 - n).

    It holds for every distribution (order statistics; Hoefler & Belli, SC15) and is 0 for one run.

    >>> [coverage_of_range(n) for n in (1, 2, 5, 6)]
    [0.0, 0.5, 0.9375, 0.96875]
    """
    return 1 - 2.0 ** (1 - runs)


@cache
def ratio_interval(
    numerator: tuple[float, ...], denominator: tuple[float, ...]
) -> Interval | None:
    """Return the bootstrap interval (2.5 to 97.5 %) of median(numerator) / median(denominator).

    Percentile bootstrap with 2,000 seeded resamples: the same runs give the same interval. None
    if either cell has a single run, whose resamples are all equal. Few runs cannot cover 95 %,
    however many resamples: coverage is at least that of the range of the fewer runs (simulated in
    tests/unit/results/test_simulations.py).

    >>> ratio_interval((10.0, 10.0), (5.0, 5.0))
    Interval(low=2.0, high=2.0, coverage=0.5)
    """
    if min(len(numerator), len(denominator)) < 2:
        return None
    draws = draws_of(len(numerator), len(denominator))
    # In order of size, so that the numbers of the repeats change no digit.
    above = _medians(sorted(numerator), draws.of_row)
    below = _medians(sorted(denominator), draws.of_reference)
    ratios = (above / below).tolist()
    return percentiles(ratios, min(len(numerator), len(denominator)))


def is_above(value: float, error: float, limit: float) -> bool:
    """Return whether the lower end of a value's 95 % interval is above a limit.

    >>> is_above(0.08, 0.0, 0.05), is_above(0.08, 0.02, 0.05)
    (True, False)
    """
    return value - ERRORS * error > limit


def percentiles(estimates: Sequence[float], runs: int) -> Interval:
    """Return the 2.5 and 97.5 % percentiles of estimates from resamples of so many runs."""
    ordered = sorted(estimates)
    cut = round((1 - CONFIDENCE) / 2 * len(ordered))
    covered = min(CONFIDENCE, coverage_of_range(runs))
    return Interval(ordered[cut], ordered[-1 - cut], covered)


RESAMPLES = 2_000


class DrawnRuns(NamedTuple):
    """The numbers of the runs of a row and of its reference in each resample, (draws, runs)."""

    of_row: "Array"
    of_reference: "Array"


@cache
def draws_of(runs: int, reference_runs: int) -> DrawnRuns:
    """Return 2,000 seeded resamples of two cells with so many runs."""
    import numpy as np  # noqa: PLC0415  (only where there are repeats)

    # this generator never changes in numpy, and draws the numbers of random.Random
    random = np.random.RandomState([runs * 1_000 + reference_runs])
    sizes = [runs, reference_runs]
    numbers = random.random_sample((RESAMPLES, sum(sizes)))
    numbers *= np.repeat(sizes, sizes)
    of_row, of_reference = np.hsplit(numbers.astype(np.int16), [runs])
    return DrawnRuns(of_row, of_reference)


def drawn_medians(
    runs: Sequence[Mapping[Any, float]], draws: "Array"
) -> "dict[Any, Seconds]":
    """Return the median of each time over the drawn runs that have it, by draw; NaN without one.

    >>> import numpy as np
    >>> drawn_medians([{"epoch": 1.0}, {"epoch": 3.0}], np.array([[0, 1], [1, 1]]))
    {'epoch': array([2., 3.])}
    """
    names = dict.fromkeys(name for run in runs for name in run)
    return {
        name: _medians([run.get(name, nan) for run in runs], draws) for name in names
    }


def _medians(runs: Sequence[float], draws: "Array") -> "Seconds":
    """Return the median of the known values of each draw, (draws, runs); NaN if none is known."""
    import numpy as np  # noqa: PLC0415  (only where there are repeats)

    with warnings.catch_warnings(action="ignore"):  # of a draw without a known value
        medians: Seconds = np.nanmedian(np.array(runs)[draws], axis=1)
    return medians


@cache
def block_scatter(blocks_s: tuple[float, ...]) -> float:
    """Return the standard deviation of blocks of iterations, as a share of their mean.

    >>> round(block_scatter((1.0, 1.1, 0.9, 1.0)), 3)
    0.082
    """
    return stdev(blocks_s) / fmean(blocks_s)


def over_ranks(blocks: Sequence[Sequence[float]]) -> list[float]:
    """Return the median over ranks of each block: ranks that train together drift together."""
    return [*map(median, zip(*blocks, strict=True))]


@cached_on_value
def epoch_error(record: Record, role: Role) -> float | None:
    """Return the relative error of an epoch's time; None below ten iterations."""
    blocks_s = _blocks_s(record, role)
    return block_scatter(tuple(blocks_s)) if blocks_s else None


def _blocks_s(record: Record, role: Role) -> list[float]:
    """Return the medians of ten blocks of iterations over the ranks; none of fewer iterations."""
    epochs = [rank.epoch(role) for rank in record.ranks]
    steps = [epoch.steps for epoch in epochs if epoch and epoch.steps]
    blocks = [step.block_medians_s for step in steps if step.block_medians_s]
    return over_ranks(blocks) if blocks else []


def run_noise(record: Record) -> float | None:
    """Return the relative error of the time of one run; None where nothing tells it.

    It is the widest of three: the error of the timed epoch; what the timed and the instrumented
    epoch, two measurements of one time, differ by: |ln(E2 / E1)| / sqrt(2); what others withheld
    from the timed one, as the end of the 95 % interval. Two epochs of a script may differ in their
    work.
    """
    errors = [epoch_error(record, Role.TIMED)]
    overhead = record.overhead
    if overhead is not None and record.cell.origin.has_fixed_epochs:
        errors.append(abs(log(1 + overhead)) / sqrt(2))
    if withheld := withheld_share(record):
        errors.append(-log(1 - withheld) / ERRORS)
    return max((error for error in errors if error is not None), default=None)


def overhead_error(record: Record) -> float:
    """Return the error of the overhead, a ratio of two epochs; 0 where it is not known."""
    errors = (epoch_error(record, role) for role in _ROLES)
    return sqrt(sum((error or 0.0) ** 2 for error in errors))


_ROLES = (Role.TIMED, Role.INSTRUMENTED)


def without_unlike(record: Record) -> Record:
    """Return the record of a script without its instrumented epoch if that does other work.

    Its iterations differ by more than their error, and than what disturbed the longer epoch.
    """
    facts = record.facts
    if facts is None or record.cell.origin.has_fixed_epochs:
        return record
    blocks_s = [_blocks_s(record, role) for role in _ROLES]
    if not all(blocks_s):
        return record
    timed_s, later_s = map(median, blocks_s)
    share = 1 - min(timed_s, later_s) / max(timed_s, later_s)
    is_unlike = is_above(share, overhead_error(record), LIKE)
    if not is_unlike or explains(record, share, _ROLES[later_s > timed_s]):
        return record
    reason = unlike(f"iterations of {1e3 * timed_s:.3g} ms", f"{1e3 * later_s:.3g} ms")
    ranks = []
    for rank in record.ranks:
        epochs = tuple(epoch for epoch in rank.epochs if epoch.role != _ROLES[1])
        ranks.append(replace(rank, epochs=epochs, communication=None))
    return replace(
        record,
        ranks=tuple(ranks),
        exchange=None,
        facts=replace(facts, missing=(*facts.missing, f"phases: {reason}")),
    )


def error_of_median(
    runs_s: Sequence[float], noises: Iterable[float | None]
) -> float | None:
    """Return the error of the logarithm of the median time of some runs; None if it is not known.

    `noises` are those of the runs, by `run_noise`. The wider of two counts: what the runs know
    themselves, which more runs do not lower, since what slowed one down may slow down all; and the
    scatter of their times, which they do.

    >>> error_of_median([10.0], [0.04]), error_of_median([10.0], [None])
    (0.04, None)
    >>> round(error_of_median([10.0, 12.0], [0.04, 0.04]), 3)
    0.091
    """
    errors = []
    squares = [noise**2 for noise in noises if noise is not None]
    if squares:
        errors.append(sqrt(fmean(squares)))
    if len(runs_s) > 1:
        errors.append(stdev(map(log, runs_s)) / sqrt(len(runs_s)))
    return max(errors, default=None)


def known_interval(ratio: float, *errors: float | None) -> Interval | None:
    """Return the 95 % interval of a ratio of times with these errors; None if one is not known.

    >>> low, high, _ = known_interval(2.0, 0.03, 0.04)
    >>> round(low, 2), round(high, 2)
    (1.81, 2.21)
    """
    squares = [error**2 for error in errors if error is not None]
    if len(squares) < len(errors):
        return None
    factor = exp(ERRORS * sqrt(sum(squares)))
    return Interval(ratio / factor, ratio * factor, CONFIDENCE)
