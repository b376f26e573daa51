"""How far one run knows its own times: the scatter of blocks of its iterations, and of its epochs.

What disturbs a machine lasts longer than a block of iterations, so the blocks are taken to deviate
together: the error of a time is the standard deviation of its blocks, not that of their mean. What
lasts for the whole launch no run can see. The derivation is in docs/formulas.md.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from math import exp, log, sqrt
from statistics import fmean, median, stdev

from msgspec.structs import replace

from hpml_jobs.core.measurements import Role
from hpml_jobs.core.outliers import LIKE, unlike
from hpml_jobs.core.record import Record
from hpml_jobs.core.value import kept
from hpml_jobs.results.disturbance import explains
from hpml_jobs.results.statistics import CONFIDENCE, ERRORS, Interval, is_above


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


@kept
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

    It is the wider of two: the error of the timed epoch, and what the timed and the instrumented
    epoch, two measurements of one time, differ by: |ln(E2 / E1)| / sqrt(2). Two epochs of a script
    may differ in their work.
    """
    error = epoch_error(record, Role.TIMED)
    overhead = record.overhead
    if overhead is None or not record.cell.origin.has_fixed_epochs:
        return error
    difference = abs(log(1 + overhead)) / sqrt(2)
    return difference if error is None else max(error, difference)


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
    themselves, and the scatter of their times.

    >>> error_of_median([10.0], [0.04]), error_of_median([10.0], [None])
    (0.04, None)
    >>> round(error_of_median([10.0, 12.0], [0.04, 0.04]), 3)
    0.091
    """
    squares = [noise**2 for noise in noises if noise is not None]
    errors = []
    if squares:
        errors.append(sqrt(fmean(squares)))
    if len(runs_s) > 1:
        errors.append(stdev(map(log, runs_s)))
    if not errors:
        return None
    return max(errors) / sqrt(len(runs_s))


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
