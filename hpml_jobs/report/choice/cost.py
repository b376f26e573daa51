"""What an epoch of a measured cell takes and costs: charged GPUs, energy, FLOP/s; its limits."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from hpml_jobs.core import formulas
from hpml_jobs.core.built_in import TransformerShape
from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.cluster import Cluster, Isolate
from hpml_jobs.core.conditions import precision_of
from hpml_jobs.core.errors import UsageError, refuse_not_positive
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.value import Value
from hpml_jobs.report.choice.series import Series
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.captions import cell_words
from hpml_jobs.report.frame.numbers import count, significant, span
from hpml_jobs.results.gpus import (
    WINOGRAD,
    FlopPerSample,
    PeakRate,
    flop_of,
    known,
    peak_of,
)
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row, Timing

T = TypeVar("T")

GIVEN = "given with the cell, before 1.0"
"""The source of a peak that is not one of a data sheet."""


class Wish(Value, frozen=True, kw_only=True):
    """What a cell to use must meet: an efficiency, or the GPU-hours of a training of `epochs`."""

    min_efficiency: float | None = None
    epochs: int | None = None
    gpu_hours: float | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that are not above zero, and a budget without the number of epochs."""
        for key in self.__struct_fields__:
            refuse_not_positive(key, getattr(self, key))
        if self.gpu_hours is not None and self.epochs is None:
            raise UsageError("gpu_hours= is of a whole training: add epochs=N")

    @property
    def gpu_hours_of_epoch(self) -> float | None:
        """The budget of an epoch; None without a budget."""
        if self.gpu_hours is None or self.epochs is None:
            return None
        return self.gpu_hours / self.epochs


class Candidate(Value, frozen=True, kw_only=True):
    """A measured cell with what an epoch of it takes and costs: medians over its runs.

    `charged_gpus` are those of whole nodes where it has them exclusively; an epoch, or other work,
    takes `epoch_s` and is charged `gpu_s`, in hours `gpu_hours`. `efficiency` is against the
    fastest cell of the smallest size. `is_doubtful`: a check is about its time.
    """

    row: Row
    timing: Timing
    device: Device
    charged_gpus: int
    epoch_s: float
    gpu_s: float
    gpu_hours: float
    efficiency: float
    is_doubtful: bool

    @property
    def joules(self) -> float | None:
        """Joules of the GPUs of the cell in an epoch; None without energy counters."""
        return self.row.figures.joules

    @property
    def words(self) -> str:
        """Its name in a sentence: `2 GPUs, batch 512 (ddp)`."""
        return cell_words(self.row.place, self.device)


def candidates_of(group: ConditionGroup, cluster: Cluster | None) -> list[Candidate]:
    """Return the measured cells of a group, the fastest first, of equal times the cheapest."""
    timed = [(row, row.timing) for row in group.timed if row.timing]
    smallest = min(((row.gpus, timing.epoch_s) for row, timing in timed), default=None)
    if smallest is None:
        return []
    per_node = _gpus_of_node(group, cluster)
    candidates = []
    for row, timing in timed:
        speedup = formulas.speedup(smallest[1], timing.epoch_s)
        charged_gpus = max(row.gpus, row.nodes * per_node)
        candidate = Candidate(
            row=row,
            timing=timing,
            device=group.device,
            charged_gpus=charged_gpus,
            epoch_s=timing.epoch_s,
            gpu_s=charged_gpus * timing.epoch_s,
            gpu_hours=formulas.gpu_hours(charged_gpus, timing.epoch_s / 60),
            efficiency=formulas.efficiency(speedup, row.gpus, smallest[0]),
            is_doubtful=group.doubts(row, Affected.TIME),
        )
        candidates.append(candidate)
    return sorted(candidates, key=lambda c: (c.epoch_s, c.gpu_s))


def asked(
    wish: Wish, candidates: Sequence[Candidate], series: Series | None
) -> Candidate | None:
    """Return the cell that a wish asks for; None without a wish, or if no cell meets it.

    With a budget it is the fastest of all cells within it, else the size with the most GPUs of the
    series that has the efficiency, in whole percent.
    """
    most = wish.gpu_hours_of_epoch
    if most is not None:
        return next((c for c in candidates if c.gpu_hours <= most), None)
    if wish.min_efficiency is None or series is None:
        return None
    meeting = [
        size.row
        for size in series.sizes
        if round(size.efficiency, 2) >= wish.min_efficiency
    ]
    return next((c for c in candidates if c.row is meeting[-1]), None)


def _gpus_of_node(group: ConditionGroup, cluster: Cluster | None) -> int:
    """Return the GPUs of each node that its cells are charged for; 0 where they share nodes."""
    if cluster is None:
        return 0
    is_exclusive = cluster.isolate is Isolate.EXCLUSIVE or "exclusive" in cluster.sbatch
    gpu_type = group.a_cell.gpu_type or ""
    return cluster.gpu_types.get(gpu_type, 0) if is_exclusive else 0


class Cost(NamedTuple):
    """What an epoch of a cell computes, by medians over its runs; None where it is not known.

    `flop` and `peak` are those of its first run with them: all runs of a row ran under
    the same conditions.
    """

    candidate: Candidate
    flop: FlopPerSample
    peak: PeakRate | None

    @property
    def flop_per_s(self) -> float | None:
        """FLOP/s of the model on each GPU over the whole epoch, data loading included."""
        return self._flop_per_s(self.candidate.epoch_s)

    @property
    def train_flop_per_s(self) -> float | None:
        """The same without data loading."""
        train_s = self.candidate.timing.train_s
        return None if train_s is None else self._flop_per_s(train_s)

    def _flop_per_s(self, seconds: float) -> float | None:
        samples = self.candidate.timing.samples
        if not self.flop.figure or not samples:
            return None
        in_all = formulas.flop_per_s(self.flop.figure, samples, seconds)
        return in_all / self.candidate.row.gpus

    @property
    def utilization(self) -> float | None:
        """The share of the peak at the cell's precision (MFU)."""
        if self.flop_per_s is None or self.peak is None:
            return None
        return formulas.utilization(self.flop_per_s, self.peak.flop_per_s)


def cost_of(group: ConditionGroup, candidate: Candidate) -> Cost:
    """Return what an epoch of a cell computes."""
    records = group.counted_records(candidate.row, Affected.TIME)
    flops = (flop for flop in map(flop_of, records) if flop.figure)
    peaks = filter(None, map(measured_peak, records))
    return Cost(candidate, next(flops, FlopPerSample(None)), next(peaks, None))


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
    records = [record for row in group.timed for record in group.records(row)]
    boards = [card for record in records for card in record.cards]
    if not boards:
        return ""
    facts = known(records, lambda record: record.facts)
    limit = _spans(
        " (this site cancels below {} %)", facts, lambda f: f.cancel_below_percent
    )
    highest = _spans(" of {} MHz", boards, lambda card: card.max_sm_clock_mhz)
    parts = [
        _spans(
            f"SM clock {{}}{highest or ' MHz'}", boards, lambda card: card.clock_mhz
        ),
        _spans("memory clock {} MHz", boards, lambda card: card.memory_clock_mhz),
        _spans(
            f"utilization {{}} %{limit}", boards, lambda card: card.utilization_percent
        ),
        _spans("power limit {} W", boards, lambda card: card.power_limit_w),
    ]
    is_sampled = all(card.samples for card in boards)
    when = "in the timed epoch" if is_sampled else "after an epoch"
    return f"Boards {when}: {', '.join(filter(None, parts))}."


def _spans(text: str, items: Sequence[T], value_of: Callable[[T], float | None]) -> str:
    """Return a text with the least and the most of the known values; empty without one.

    >>> _spans("{} MHz", [1980, None, 1755], lambda mhz: mhz), _spans("{} W", [None], lambda w: w)
    ('1,755 to 1,980 MHz', '')
    """
    values = known(items, value_of)
    return text.format(span(map(round, values), count)) if values else ""
