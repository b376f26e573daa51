"""What an epoch costs: charged GPUs, energy, and the FLOP/s that are reached for it."""

from collections.abc import Callable
from typing import TypeVar

from hpml_jobs.checks.gpu_peaks import FlopPerSample, PeakRate, flop_of, peak_of
from hpml_jobs.checks.result import Affected
from hpml_jobs.core import formulas
from hpml_jobs.core.conditions import precision_of
from hpml_jobs.core.measurements import Card
from hpml_jobs.core.record import Record
from hpml_jobs.report.frame.groups import ChargedRow, ConditionGroup
from hpml_jobs.report.frame.rows import Row

T = TypeVar("T")

GIVEN = "given as cluster.peak_tflop_per_s"
"""The source of a peak that is not one of a data sheet."""


class Cost(ChargedRow, frozen=True, kw_only=True):
    """The cost of an epoch of a row: medians over its runs; None where something is not known.

    `flop` and `peak` are those of its first run with them: all runs of a row ran under
    the same conditions.
    """

    flop: FlopPerSample
    peak: PeakRate | None

    @property
    def flop_per_s(self) -> float | None:
        """FLOP/s of the model on each GPU over the whole epoch, data loading included."""
        return self._flop_per_s(self.epoch_s)

    @property
    def train_flop_per_s(self) -> float | None:
        """The same without data loading."""
        train_s = self.timing.train_s
        return None if train_s is None else self._flop_per_s(train_s)

    def _flop_per_s(self, seconds: float) -> float | None:
        if not self.flop.figure or not self.timing.samples:
            return None
        in_all = formulas.flop_per_s(self.flop.figure, self.timing.samples, seconds)
        return in_all / self.row.gpus

    @property
    def utilization(self) -> float | None:
        """The share of the peak at the cell's precision (MFU)."""
        if self.flop_per_s is None or self.peak is None:
            return None
        return formulas.utilization(self.flop_per_s, self.peak.flop_per_s)


def cost_of(group: ConditionGroup, row: Row, charged_gpus: int) -> Cost | None:
    """Return the cost of a row; None without a time."""
    if row.timing is None:
        return None
    records = group.counted_records(row, Affected.TIME)
    return Cost(
        row=row,
        timing=row.timing,
        device=group.device,
        charged_gpus=charged_gpus,
        flop=_first(_known_flop, records) or FlopPerSample(None),
        peak=_first(measured_peak, records),
    )


def _first(value_of: Callable[[Record], T | None], records: list[Record]) -> T | None:
    return next((value for record in records if (value := value_of(record)) is not None), None)


def _known_flop(record: Record) -> FlopPerSample | None:
    flop = flop_of(record)
    return flop if flop.figure else None


def measured_peak(record: Record) -> PeakRate | None:
    """Return the peak that a record's FLOP/s are a share of.

    It is that of the cluster's config, else of the GPU at the precision of the cell. None of an
    imported timing, whose precision is not known.
    """
    if record.imported or record.facts is None:
        return None
    given = record.facts.peak_tflop_per_s
    if given is None:
        return peak_of(record)
    rate = 1e12 * given
    return PeakRate(rate, precision_of(record), GIVEN, doubtful=rate, impossible=rate)


def cards(group: ConditionGroup) -> list[Card]:
    """Return the states of all GPUs of the group's runs."""
    return [
        card
        for row in group.timed
        for record in group.records(row)
        for rank in record.ranks
        for card in rank.cards
    ]
