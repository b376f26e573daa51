"""Why N GPUs are not N times as fast: what each cause takes of the ideal speedup."""

from collections.abc import Callable, Mapping, Sequence
from math import isnan
from statistics import median
from typing import Any, NamedTuple

from hpml_jobs.core import formulas
from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.measurements import Role
from hpml_jobs.results.cells import CellResult
from hpml_jobs.results.disturbance import outside_causes
from hpml_jobs.results.gap.causes import (
    EPOCH,
    SETS,
    Causes,
    GapCause,
    NoReplayError,
    late_ranks,
    parts,
    seconds_of,
    shapley,
)
from hpml_jobs.results.rows import Pair, Row
from hpml_jobs.results.statistics import drawn_medians, draws_of, percentiles

Times = Mapping[Any, float]
"""What is known of a run: its epoch, and seconds by name or its share without sets of causes."""

DrawnParts = Mapping[GapCause, Any]
"""Arrays of what each known cause takes of the ideal speedup, by resample; NaN: not known there."""


class GapPart(NamedTuple):
    """A part of the ideal speedup; it has an interval if both cells have repeats."""

    value: float
    low: float | None = None
    high: float | None = None


class Gap(NamedTuple):
    """The speedup of a row, and the parts that are missing to the ideal one.

    `late` are the ranks that the others wait for, or each other; empty where that is not known.
    Checks may doubt the speedup, or its parts too. Where an epoch cannot be replayed, `unproven`
    says why.
    """

    speedup: float
    parts: Mapping[GapCause, GapPart]
    late: str
    is_doubtful: bool
    doubts_parts: bool
    unproven: str

    @property
    def missing(self) -> float:
        """The sum of the parts."""
        return sum(part.value for part in self.parts.values())

    @property
    def ideal(self) -> float:
        """The ideal speedup."""
        return self.speedup + self.missing

    @property
    def is_split(self) -> bool:
        """Whether exchange is known, and with it what nothing explains."""
        return GapCause.EXCHANGE in self.parts


class GapEstimate(NamedTuple):
    """The known times of the runs of a row and of its reference, and what makes parts of them.

    `splits` is the number of runs of either whose parts are measured. `late` is as in `Gap`.
    """

    of_row: Sequence[Times]
    of_reference: Sequence[Times]
    parts: Callable[
        [Mapping[Any, Any], Mapping[Any, Any], float], Mapping[GapCause, Any]
    ]
    splits: int
    late: str = ""


def gap_of(pair: Pair) -> Gap | None:
    """Return the gap of a row to the ideal speedup over its reference; None if no part is known."""
    reference, row = pair
    ideal = row.gpus / reference.gpus
    unproven = ""
    try:
        estimate = _from_replays(row, reference, ideal)
    except NoReplayError as fault:
        estimate = _from_seconds(row, reference)
        unproven = str(fault)
    times = medians_of(estimate.of_row)
    reference_times = medians_of(estimate.of_reference)
    of_medians = estimate.parts(times, reference_times, ideal)
    values = {cause: float(part) for cause, part in of_medians.items()}
    if None in (row.figures.others_run_queue_s, reference.figures.others_run_queue_s):
        values[GapCause.UNEXPLAINED] += values.pop(GapCause.CPUS, 0.0)
    if [*values] == [GapCause.UNEXPLAINED]:
        return None
    drawn = _resampled(estimate, ideal)
    records = [r for r in row.records if row.counts(r.slug, Affected.SPLIT)]
    are_disturbed = all(outside_causes(record, Role.UNSYNCED) for record in records)
    return Gap(
        speedup=pair.speedup,
        parts={
            cause: _part(cause, value, drawn, estimate)
            for cause, value in values.items()
        },
        late=estimate.late,
        is_doubtful=pair.is_doubtful,
        doubts_parts=(
            are_disturbed or pair.is_doubtful or Affected.SPLIT in row.doubts
        ),
        unproven=unproven,
    )


def _from_seconds(row: Row, reference: Row) -> GapEstimate:
    """Return sums of seconds, where the epochs cannot be replayed."""
    of_row = [seconds_of(row, run) for run in row.runs]
    of_reference = [seconds_of(reference, run) for run in reference.runs]
    splits = min(map(_complete, (of_row, of_reference)))
    return GapEstimate(of_row, of_reference, parts, splits)


def _complete(runs: Sequence[Times]) -> int:
    """Return how many runs have as many known times as any of them."""
    most = max(map(len, runs))
    return sum(len(times) == most for times in runs)


def _from_replays(row: Row, reference: Row, ideal: float) -> GapEstimate:
    """Return replays of the epochs.

    Raises:
        NoReplayError: a run cannot be replayed.
    """
    from hpml_jobs.results.gap.replay import replays  # noqa: PLC0415  (needs numpy)

    replayed = replays(_split_runs(row), _split_runs(reference), ideal)
    return GapEstimate(
        _times(row, replayed.of_row),
        _times(reference, replayed.of_reference),
        replayed_parts,
        min(len(replayed.of_row), len(replayed.of_reference)),
        late_ranks(replayed.late, row.gpus),
    )


def _split_runs(row: Row) -> list[CellResult]:
    """Return the runs of which every epoch counts, the one without exchange too."""
    left_out = {run.slug for run in row.left_out if isinstance(run.role, Role)}
    return [result for result in row.measured_cells if result.slug not in left_out]


def _times(row: Row, shares: Mapping[str, Mapping[Causes, float]]) -> list[Times]:
    """Return the epoch of each run that counts, with its shares, by its length.

    A run whose split does not count has the medians of the others. In this order the numbers of the
    repeats change no digit of a resample.
    """
    typical = medians_of([*shares.values()])
    return [
        {EPOCH: record.epoch_s, **shares.get(record.slug, typical)}
        for record in sorted(row.timed_records, key=lambda record: record.epoch_s)
    ]


def medians_of(runs: Sequence[Times]) -> dict[Any, float]:
    """Return the median of each time over the runs that have it."""
    names = dict.fromkeys(name for run in runs for name in run)
    return {name: median(run[name] for run in runs if name in run) for name in names}


def speedups_without(
    times: Mapping[Any, Any], reference: Mapping[Any, Any]
) -> dict[Causes, Any]:
    """Return the speedup without each set of causes, in the row and in its reference."""
    speedup = formulas.speedup(reference[EPOCH], times[EPOCH])
    return {causes: speedup * reference[causes] / times[causes] for causes in SETS}


def replayed_parts(
    times: Mapping[Any, Any], reference: Mapping[Any, Any], ideal: float
) -> dict[GapCause, Any]:
    """Return what each cause takes of the ideal speedup; they sum to ideal - speedup."""
    return shapley(speedups_without(times, reference), ideal)


def _resampled(estimate: GapEstimate, ideal: float) -> DrawnParts:
    """Return the parts of resamples of both cells' runs; none of single splits."""
    if estimate.splits < 2:
        return {}
    draws = draws_of(len(estimate.of_row), len(estimate.of_reference))
    times = drawn_medians(estimate.of_row, draws.of_row)
    reference_times = drawn_medians(estimate.of_reference, draws.of_reference)
    return estimate.parts(times, reference_times, ideal)


def _part(
    cause: GapCause, value: float, drawn: DrawnParts, estimate: GapEstimate
) -> GapPart:
    of_draws = drawn[cause].tolist() if drawn else []
    values = [part for part in of_draws if not isnan(part)]
    if not values:
        return GapPart(value)
    return GapPart(value, *percentiles(values, estimate.splits)[:2])
