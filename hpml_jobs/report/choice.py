"""What an epoch of a measured cell takes and costs, the cell that a wish asks for, their table."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple, Self

from hpml_jobs.core import formulas
from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.cluster import Cluster, Isolate
from hpml_jobs.core.errors import UsageError, refuse_not_positive
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.value import Value
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.captions import cell_words
from hpml_jobs.report.frame.numbers import (
    cost,
    per_second,
    percent,
    seconds,
    significant,
    three_digits,
)
from hpml_jobs.report.frame.table import (
    Column,
    Number,
    Table,
    TableText,
    columns_of,
    item_table,
    line_from,
    row_name,
)
from hpml_jobs.results.gpus import FlopPerSample, PeakRate, flop_of, peak_of
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row, Series, Timing


class Wish(Value, frozen=True, kw_only=True):
    """What a cell to use must meet: an efficiency, or the GPU-hours of a training of `epochs`."""

    min_efficiency: float | None = None
    epochs: int | None = None
    gpu_hours: float | None = None

    def __post_init__(self) -> None:
        """Refuse numbers not above zero, two wishes, and a budget without the number of epochs."""
        for key in self.__struct_fields__:
            refuse_not_positive(key, getattr(self, key))
        if self.gpu_hours is not None and self.epochs is None:
            raise UsageError("gpu_hours= is of a whole training: add epochs=N")
        if None not in (self.gpu_hours, self.min_efficiency):
            raise UsageError("gpu_hours= with min_efficiency=: give one of them")

    @property
    def gpu_hours_of_epoch(self) -> float | None:
        """The budget of an epoch; None without a budget."""
        if self.gpu_hours is None or self.epochs is None:
            return None
        return self.gpu_hours / self.epochs


class Candidate(Value, frozen=True, kw_only=True):
    """A measured cell with what an epoch of it takes and costs: medians over its runs.

    `charged_gpus` are those of whole nodes where it has them exclusively; an epoch, or other work,
    takes `epoch_s` and is charged `gpu_s`, in hours `gpu_hours`. `is_doubtful`: a check is about
    its time.
    """

    row: Row
    timing: Timing
    device: Device
    charged_gpus: int
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
    def words(self) -> str:
        """Its name in a sentence: `2 GPUs, batch 512`."""
        return cell_words(self.row.place, self.device)


def candidates_of(group: ConditionGroup, cluster: Cluster | None) -> list[Candidate]:
    """Return the measured cells of a group, the fastest first, of equal times the cheapest."""
    per_node = _gpus_of_node(group, cluster)
    candidates = [
        Candidate(
            row=row,
            timing=row.timing,
            device=group.device,
            charged_gpus=max(row.gpus, row.nodes * per_node),
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
        if round(size.efficiency, 2) >= wish.min_efficiency and size.speedup >= 1
    ]
    if not meeting:
        return None
    return next(c for c in candidates if c.row is meeting[-1])


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
    peak = next(filter(None, map(peak_of, records)), None)
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


CAPTION = (
    "Seconds per {what} of the slowest process, median over runs. Cost: {units} that are "
    "charged x s. Another global batch may need another learning rate and reach another accuracy."
)

FLOP = ("flop_per_s_per_gpu", "utilization")
JOULES = (
    "J: NVML's energy counters of the cell's own boards, from right before to right after the "
    "epoch; hosts are not in it. A counter advances every 20 to 100 ms."
)


class ChoiceLine(NamedTuple):
    """A measured cell, what an epoch of it takes and costs, and what it is the best in.

    `is_doubtful`: a check is about its time.
    """

    strategy: str
    gpus: int
    nodes: int
    treatment: str
    batch: int
    epoch_s: Annotated[float, Column("s", seconds, doubt="is_doubtful")]
    units_per_s: Annotated[Number, Column("{unit}/s", per_second, doubt="is_doubtful")]
    unit: str
    charged_gpu_s: Annotated[
        float, Column("{seconds}", cost, "{cost}", doubt="is_doubtful")
    ]
    charged_gpu_hours: Annotated[
        float, Column("{hours}", three_digits, "{cost}", doubt="is_doubtful")
    ]
    joules: Annotated[Number, Column("J per epoch", three_digits)]
    flop_per_s_per_gpu: Annotated[
        Number, Column("TFLOP/s per {device}", tflop_per_s, doubt="is_doubtful")
    ]
    utilization: Annotated[Number, Column("% of peak", percent, doubt="is_doubtful")]
    charged_gpus: int
    runs: int
    why: Annotated[str, Column("why", words=True)]
    is_doubtful: bool

    @classmethod
    def of(cls, cost: Cost, why: str) -> Self:
        """Return the line of a cell with what an epoch of it costs."""
        candidate = cost.candidate
        row = candidate.row
        timing = candidate.timing
        return line_from(
            cls,
            candidate,
            timing,
            row,
            cost,
            strategy=row.strategy.value,
            batch=row.batch_per_gpu,
            unit=timing.unit.value,
            charged_gpu_s=candidate.gpu_s,
            charged_gpu_hours=candidate.gpu_hours,
            joules=row.figures.joules,
            flop_per_s_per_gpu=cost.flop_per_s,
            runs=len(row.runs),
            why=why,
        )


def choice_table(
    group: ConditionGroup,
    candidates: Sequence[Candidate],
    wish: Wish,
    asked: Candidate | None,
) -> Table | None:
    """Return the table of all measured cells; None without one."""
    if not candidates:
        return None
    device = group.device
    caption = CAPTION.format(
        what=captions.work_text(group.work), units=captions.units(device)
    )
    costs = [cost_of(candidate) for candidate in candidates]
    items = [
        (row_name(group, cost.candidate.row), ChoiceLine.of(cost, why))
        for cost, why in zip(costs, _whys(candidates, wish, asked), strict=True)
    ]
    has_energy = any(line.joules is not None for _, line in items)
    unknown = [] if has_energy else ["joules"]
    has_flop = device is Device.CUDA
    if not has_flop:
        unknown += [*FLOP, "charged_gpu_hours"]
    text = TableText(
        "choice",
        "Choice and cost",
        "",
        (
            caption,
            JOULES if has_energy else "",
            *((flop_text(group, costs), peak_text(group, costs)) if has_flop else ()),
            captions.runs(group.timed),
        ),
    )
    columns = columns_of(
        ChoiceLine,
        without=unknown,
        device=captions.unit(device),
        unit=candidates[0].timing.unit.value,
        cost=f"cost per {captions.work_text(group.work)}",
        seconds=f"{captions.unit(device)}-s",
        hours=f"{captions.unit(device)}-hours",
    )
    notes = captions.explained(group.timed, Affected.TIME)
    return item_table([group], text, items, columns, notes)


def _whys(
    candidates: Sequence[Candidate], wish: Wish, asked: Candidate | None
) -> list[str]:
    """Return what each cell is the best in, and whether it is beyond the budget of a wish."""
    cheapest = min(candidates, key=lambda c: (c.gpu_s, c.epoch_s))
    budget = wish.gpu_hours_of_epoch
    whys = []
    for candidate in candidates:
        roles = {
            "the answer": candidate is asked,
            "fastest": candidate is candidates[0],
            "cheapest": candidate is cheapest,
            "over the budget": budget is not None and candidate.gpu_hours > budget,
        }
        whys.append("; ".join(role for role, holds in roles.items() if holds))
    return whys
