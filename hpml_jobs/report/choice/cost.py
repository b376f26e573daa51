"""What an epoch of a measured cell takes and costs: charged GPUs, energy, FLOP/s; its limits."""

from collections.abc import Sequence
from typing import NamedTuple

from hpml_jobs.core import formulas
from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.cluster import Cluster, Isolate
from hpml_jobs.core.errors import UsageError, refuse_not_positive
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.value import Value
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.captions import cell_words
from hpml_jobs.report.frame.numbers import significant
from hpml_jobs.results.gpus import (
    FlopPerSample,
    PeakRate,
    flop_of,
    peak_of,
)
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Pair, Row, Timing
from hpml_jobs.results.series import Series


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
    efficiency: float
    is_doubtful: bool

    @property
    def epoch_s(self) -> float:
        """Seconds of an epoch, or of other work."""
        return self.timing.epoch_s

    @property
    def gpu_s(self) -> float:
        """GPU-seconds that are charged for it."""
        return self.charged_gpus * self.epoch_s

    @property
    def gpu_hours(self) -> float:
        """The same in GPU-hours."""
        return formulas.gpu_hours(self.charged_gpus, self.epoch_s / 60)

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
    if not group.timed:
        return []
    smallest = min(group.timed, key=lambda row: (row.gpus, row.figures.epoch_s))
    per_node = _gpus_of_node(group, cluster)
    candidates = [
        Candidate(
            row=row,
            timing=row.timing,
            device=group.device,
            charged_gpus=max(row.gpus, row.nodes * per_node),
            efficiency=Pair(smallest, row).efficiency,
            is_doubtful=Affected.TIME in row.doubts,
        )
        for row in group.timed
        if row.timing
    ]
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
        size.parallel
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
        timing = self.candidate.timing
        if not self.flop.figure or not timing.samples:
            return None
        in_all = formulas.flop_per_s(self.flop.figure, timing.samples, timing.epoch_s)
        return in_all / self.candidate.row.gpus

    @property
    def utilization(self) -> float | None:
        """The share of the peak at the cell's precision (MFU)."""
        if self.flop_per_s is None or self.peak is None:
            return None
        return formulas.utilization(self.flop_per_s, self.peak.flop_per_s)


def cost_of(candidate: Candidate) -> Cost:
    """Return what an epoch of a cell computes."""
    records = candidate.row.timed_records
    flops = (flop for flop in map(flop_of, records) if flop.figure)
    # the precision of imported timings is not known
    peaks = (peak_of(record) for record in records if record.measured_facts)
    peak = next(filter(None, peaks), None)
    return Cost(candidate, next(flops, FlopPerSample(None)), peak)


def tflop_per_s(flop_per_s: float) -> str:
    """Return FLOP/s in TFLOP/s with three digits.

    >>> tflop_per_s(6.415e12), tflop_per_s(2.04e9)
    ('6.42', '0.00204')
    """
    return significant(flop_per_s / 1e12, 3)


def flop_text(group: ConditionGroup, costs: Sequence[Cost]) -> str:
    """Return the FLOP of a sample and how the FLOP/s follow from them; empty if not known."""
    flops = [cost.flop for cost in costs if cost.flop.figure]
    if not flops:
        return ""
    figures = sorted({flop.figure or 0 for flop in flops})
    flop = " or ".join(significant(value / 1e9, 4) for value in figures)
    what = FORMULA if flops[0].by_formula else "forward and backward of the model"
    return (
        f"TFLOP/s: {flop} GFLOP of a sample ({what}, 2 per multiply-add) x samples / "
        f"({captions.units(group.device)} x seconds of the epoch)."
    )


FORMULA = "6 N + 12 L H Q T for each token: Chowdhery et al., PaLM, appendix B"


def peak_text(group: ConditionGroup, costs: Sequence[Cost]) -> str:
    """Return the peak of which the FLOP/s are a share, with its source; or that there is none."""
    peak = next((cost.peak for cost in costs if cost.peak), None)
    if peak is None:
        return "No % of peak: the precision, or the peak of this GPU, is not known."
    return (
        f"% of peak (MFU): TFLOP/s / {significant(peak.flop_per_s / 1e12, 4)} TFLOP/s dense "
        f"{peak.precision}, {captions.hardware(group)} ({peak.source})."
    )
