"""What an epoch costs: charged GPUs, energy, and the FLOP/s that are reached for it, in words."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from hpml_jobs.core import formulas
from hpml_jobs.core.built_in import TransformerShape
from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.conditions import precision_of
from hpml_jobs.core.gpus import Card
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Device
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.numbers import count, significant, span
from hpml_jobs.results.checks.gpu_peaks import (
    WINOGRAD,
    FlopPerSample,
    PeakRate,
    flop_of,
    peak_of,
)
from hpml_jobs.results.groups import ChargedRow, ConditionGroup

T = TypeVar("T")

GIVEN = "given with the cell, before 1.0"
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


def cost_of(group: ConditionGroup, charged: ChargedRow) -> Cost:
    """Return the cost of a row with its time."""
    records = group.counted_records(charged.row, Affected.TIME)
    return Cost(
        row=charged.row,
        timing=charged.timing,
        device=charged.device,
        charged_gpus=charged.charged_gpus,
        flop=_first(_known_flop, records) or FlopPerSample(None),
        peak=_first(measured_peak, records),
    )


def _first(value_of: Callable[[Record], T | None], records: list[Record]) -> T | None:
    return next(
        (value for record in records if (value := value_of(record)) is not None), None
    )


def _known_flop(record: Record) -> FlopPerSample | None:
    flop = flop_of(record)
    return flop if flop.figure else None


def measured_peak(record: Record) -> PeakRate | None:
    """Return the peak that a record's FLOP/s are a share of.

    It is that of the GPU at the precision of the cell; before 1.0 a cell could give another. None
    of an imported timing, whose precision is not known.
    """
    facts = record.measured_facts
    if facts is None:
        return None
    peak_tflop_per_s = facts.peak_tflop_per_s
    if peak_tflop_per_s is None:
        return peak_of(record)
    rate = 1e12 * peak_tflop_per_s
    return PeakRate(rate, precision_of(record), GIVEN, impossible=rate)


def cards(group: ConditionGroup) -> list[Card]:
    """Return the states of all GPUs of the group's runs."""
    return [
        card
        for row in group.timed
        for record in group.records(row)
        for rank in record.ranks
        for card in rank.cards
    ]


def tflop_per_s(flop_per_s: float) -> str:
    """Return FLOP/s in TFLOP/s with three digits.

    >>> tflop_per_s(6.415e12), tflop_per_s(2.04e9)
    ('6.42', '0.00204')
    """
    return significant(flop_per_s / 1e12, 3)


def flop_text(group: ConditionGroup, costs: Sequence[Cost]) -> str:
    """Return the FLOP of a sample and how the FLOP/s follow from them; empty if not known."""
    shape = group.a_cell.workload.built_in_shape
    flop_of_shape = next((cost.flop for cost in costs if cost.flop.by_formula), None)
    if shape is not None and flop_of_shape is not None:
        return _formula_text(group.device, shape, flop_of_shape)
    figures = sorted({cost.flop.figure for cost in costs if cost.flop.figure})
    if not figures:
        return ""
    flop = " or ".join(significant(value / 1e9, 4) for value in figures)
    return (
        f"TFLOP/s: {flop} GFLOP of a sample (forward and backward of the model, 2 per "
        f"multiply-add) x samples / ({captions.units(group.device)} x seconds of the epoch)."
    )


def _formula_text(device: Device, shape: TransformerShape, flop: FlopPerSample) -> str:
    """Return the FLOP of a transformer's token, by the formula and beside it as torch counts."""
    per_token, weights = (
        (flop.by_formula or 0) / shape.context,
        count(flop.weights or 0),
    )
    counted = (
        f"torch counts {significant(flop.counted / shape.context / 1e6, 4)}"
        if flop.counted
        else "torch's count is not known"
    )
    return (
        f"FLOP of a token: 6 N + 12 L H Q T = {significant(per_token / 1e6, 4)} MFLOP (N = "
        f"{weights} parameters without position embeddings, L = {shape.layers}, H Q = "
        f"{count(shape.width)}, T = {count(shape.context)}; Chowdhery et al., PaLM, appendix B; N "
        f"as in nanoGPT); {counted}. TFLOP/s: the formula's x tokens / ({captions.units(device)} x "
        "seconds of the epoch); what is computed again to save memory does not count (no HFU)."
    )


def peak_text(group: ConditionGroup, costs: Sequence[Cost]) -> str:
    """Return the peak of which the FLOP/s are a share, with its source; why there is none."""
    peak = next((cost.peak for cost in costs if cost.peak), None)
    if peak is not None:
        return (
            f"% of peak (MFU): TFLOP/s / {significant(peak.flop_per_s / 1e12, 4)} TFLOP/s dense "
            f"{peak.precision}, {captions.hardware(group)} ({peak.source}).{_winograd(costs, peak)}"
        )
    if not group.origin.has_facts:
        return "No % of peak: the precision is not reported."
    if group.a_cell.workload.own_code:
        return "No % of peak: the precision of your own code is not known."
    return "No % of peak: the peak of this GPU is not known."


def _winograd(costs: Sequence[Cost], peak: PeakRate) -> str:
    """Return why a share may be high, where one is above the doubtful rate of ordinary cores."""
    reached = max(
        (cost.train_flop_per_s or cost.flop_per_s or 0.0 for cost in costs), default=0.0
    )
    if peak.impossible <= peak.flop_per_s or reached <= 0.5 * peak.flop_per_s:
        return ""
    return (
        f" Winograd's 3 x 3 convolutions on ordinary cores need up to {WINOGRAD:g} times fewer "
        "multiplications than are counted, so a share may exceed 100 %."
    )


def clocks_text(group: ConditionGroup) -> str:
    """Return clocks and power limit of the boards; empty if they were not read."""
    boards = cards(group)
    if not boards:
        return ""
    records = [record for row in group.timed for record in group.records(row)]
    limits = [record.facts.cancel_below_percent for record in records if record.facts]
    highest = _spans(" of {} MHz", [card.max_sm_clock_mhz for card in boards]) or " MHz"
    limit = _spans(" (this site cancels below {} %)", limits)
    parts = [
        _spans(f"SM clock {{}}{highest}", [card.clock_mhz for card in boards]),
        _spans("memory clock {} MHz", [card.memory_clock_mhz for card in boards]),
        _spans(
            f"utilization {{}} %{limit}", [card.utilization_percent for card in boards]
        ),
        _spans("power limit {} W", [card.power_limit_w for card in boards]),
    ]
    is_sampled = all(card.samples for card in boards)
    when = "in the timed epoch" if is_sampled else "after an epoch"
    return f"Boards {when}: {', '.join(part for part in parts if part)}."


def _spans(text: str, values: Sequence[float | None]) -> str:
    """Return a text with the least and the most of the known values; empty without one.

    >>> _spans("{} MHz", [1980, None, 1755]), _spans("{} W", [700.0]), _spans("{} W", [None])
    ('1,755 to 1,980 MHz', '700 W', '')
    """
    numbers = [value for value in values if value is not None]
    return text.format(span(map(round, numbers), count)) if numbers else ""
