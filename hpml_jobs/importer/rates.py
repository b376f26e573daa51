"""Rates of a CSV file as times: of an epoch, or of equal work where its samples are unknown."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from hpml_jobs.core.built_in import (
    UNREPORTED_DATA,
    UNREPORTED_IMAGES,
    UNREPORTED_SAMPLES,
    UNREPORTED_TOKENS,
)
from hpml_jobs.core.cell import Cell
from hpml_jobs.core.formulas import rate_of_step, samples_processed, time_at_rate_s
from hpml_jobs.core.record import Record
from hpml_jobs.core.text import nearest
from hpml_jobs.core.validation import LONGEST_S
from hpml_jobs.errors import UsageError

WORK_SAMPLES = 1_000_000
"""Samples whose time a row has where the samples of an epoch are not reported."""


class RateUnit(StrEnum):
    """Units of a rate: of a throughput, or of an iteration of all GPUs together."""

    IMAGES = "images/s"
    SAMPLES = "samples/s"
    TOKENS = "tokens/s"
    ITERATION = "s/iteration"

    def data(self, images: int | None) -> str:
        """Return the data of a workload with such samples, so many in an epoch if that is known.

        Times of other work than an epoch are never those of the same workload as epochs.
        """
        match self:
            case RateUnit.IMAGES:
                return UNREPORTED_IMAGES if images is None else UNREPORTED_DATA
            case RateUnit.TOKENS:
                return UNREPORTED_TOKENS
            case _:
                return UNREPORTED_SAMPLES


def read_unit(text: str | None) -> RateUnit:
    """Return the unit of that name.

    Raises:
        UsageError: there is none.
    """
    units = [unit.value for unit in RateUnit]
    if text is None:
        raise UsageError(f"unit is missing: add a column unit or unit= ({', '.join(units)})")
    if text not in units:
        near = nearest(text, units)
        hint = f"; did you mean {near}?" if near else ""
        raise UsageError(f"unit={text}: choose one of {', '.join(units)}{hint}")
    return RateUnit(text)


class Times(NamedTuple):
    """Seconds of `work_samples` (None: of an epoch), and of an iteration where that is known."""

    epoch_s: float
    work_samples: int | None
    step_s: float | None


def times(rate: float, unit: RateUnit, cell: Cell, *, per_gpu: bool) -> Times:
    """Return the times that follow from a rate.

    A rate in samples is divided by the samples of a batch; a batch counts sequences where samples
    are tokens, so there the duration of an iteration stays unknown.

    Raises:
        UsageError: the rate is that of no training.
    """
    if unit is RateUnit.ITERATION:
        step_s: float | None = rate
        in_all = rate_of_step(cell.gpus, cell.batch, rate)
    else:
        in_all = rate * cell.gpus if per_gpu else rate
        step_s = None if unit is RateUnit.TOKENS else time_at_rate_s(cell.gpus * cell.batch, in_all)
    images = cell.workload.images
    work = None if images is not None else WORK_SAMPLES
    samples = work or samples_processed(images or 0, cell.processes)
    epoch_s = time_at_rate_s(samples, in_all)
    if not 0 < epoch_s <= LONGEST_S:
        raise UsageError(
            f"rate={rate:g} {unit.value}: {samples:,} samples would take {epoch_s:g} s"
        )
    return Times(epoch_s, work, step_s)


SERIES_GROWTH = 1.1
"""Least growth of the rate from the fewest to the most GPUs that is a rate of all GPUs together."""


def hardly_growing(records: Iterable[Record]) -> Iterator[tuple[Record, Record]]:
    """Yield the fewest and the most GPUs of each series whose rate of all GPUs hardly grows.

    A rate per GPU looks like this.
    """
    series: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        imported, cell = record.imported, record.cell
        if (
            imported
            and imported.unit not in (None, RateUnit.ITERATION)
            and not imported.rate_is_per_gpu
        ):
            key = cell.workload, cell.gpu_type, cell.batch, cell.repeat
            series.setdefault(key, []).append(record)
    for members in series.values():
        ordered = sorted(members, key=lambda record: record.cell.gpus)
        first, last = ordered[0], ordered[-1]
        if last.cell.gpus > first.cell.gpus and first.epoch_s < SERIES_GROWTH * last.epoch_s:
            yield first, last
