"""Full table of the cost of an epoch: GPU-hours, joules, FLOP/s, and what they are measured by."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple, Self

from hpml_jobs.checks.gpu_peaks import WINOGRAD, FlopPerSample, PeakRate
from hpml_jobs.core.built_in import TransformerShape
from hpml_jobs.core.strategies import Device
from hpml_jobs.report.cost.rules import Cost, cards, cost_of
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.builder import (
    Number,
    Shown,
    TableText,
    columns_of,
    left_out,
    line_table,
    rest,
)
from hpml_jobs.report.frame.groups import Charged, ConditionGroup
from hpml_jobs.report.frame.numbers import count, percent, significant, three_digits
from hpml_jobs.report.frame.table import Table


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
    known = sorted({cost.flop.figure for cost in costs if cost.flop.figure})
    if not known:
        return ""
    flop = " or ".join(significant(value / 1e9, 4) for value in known)
    return (
        f"TFLOP/s: {flop} GFLOP of a sample (forward and backward of the model, 2 per "
        f"multiply-add) x samples / ({captions.units(group.device)} x seconds of the epoch)."
    )


def _formula_text(device: Device, shape: TransformerShape, flop: FlopPerSample) -> str:
    """Return the FLOP of a transformer's token, by the formula and beside it as torch counts."""
    per_token, weights = (flop.by_formula or 0) / shape.context, count(flop.weights or 0)
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
    if group.device is Device.CPU:
        return "No % of peak: the peak of a CPU is not known (cluster.peak_tflop_per_s= gives it)."
    if group.imported:
        return "No % of peak: the precision is not reported."
    if group.a_cell.workload.own_code:
        return "No % of peak: the precision of your own code is not known."
    return "No % of peak: the peak of this GPU is not known."


def _winograd(costs: Sequence[Cost], peak: PeakRate) -> str:
    """Return why a share may be high, where one is above the doubtful rate of ordinary cores."""
    reached = max((cost.train_flop_per_s or cost.flop_per_s or 0.0 for cost in costs), default=0.0)
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
    clock = _optional_span("SM clock {}", [card.clock_mhz for card in boards])
    highest = _optional_span(" of {} MHz", [card.max_sm_clock_mhz for card in boards])
    used = _optional_span("utilization {} %", [card.utilization_percent for card in boards])
    records = [record for row in group.timed for record in group.records(row)]
    limits = [record.facts.cancel_below_percent for record in records if record.facts]
    parts = [
        clock and clock + (highest or " MHz"),
        _optional_span("memory clock {} MHz", [card.memory_clock_mhz for card in boards]),
        used and used + _optional_span(" (this site cancels below {} %)", limits),
        _optional_span("power limit {} W", [card.power_limit_w for card in boards]),
    ]
    when = "in the timed epoch" if all(card.samples for card in boards) else "after an epoch"
    return f"Boards {when}: {', '.join(part for part in parts if part)}."


def _span(values: Sequence[float]) -> str:
    """Return the least and the most of some values.

    >>> _span([1980, 1755, 1980]), _span([700.0])
    ('1,755 to 1,980', '700')
    """
    ends = sorted(values)
    return " to ".join(dict.fromkeys(count(round(value)) for value in (ends[0], ends[-1])))


def _optional_span(text: str, values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return text.format(_span(known)) if known else ""


LABEL = "cost"

CHARGED = (
    "{hours}: {units} that are charged x seconds of {what} / 3600. {names}: those that are "
    "processed, padding included."
)
JOULES = (
    "Joules: NVML's energy counters of the cell's own boards, from right before to right after the "
    "epoch; hosts are not in it. A counter advances every 20 to 100 ms."
)


class CostLine(NamedTuple):
    """What an epoch of a row costs, and the FLOP/s that it reached."""

    charged_gpus: int
    charged_gpu_hours: Annotated[float, Shown("{per_work}", three_digits, "{hours}")]
    charged_gpu_s_per_1000_units: Annotated[Number, Shown("{thousand}", three_digits, "{cost}")]
    joules: Annotated[Number, Shown("{per_work}", three_digits, "J")]
    joules_per_1000_units: Annotated[Number, Shown("{thousand}", three_digits, "J")]
    flop_per_s_per_gpu: Annotated[Number, Shown("TFLOP/s per {device}", tflop_per_s)]
    utilization: Annotated[Number, Shown("% of peak", percent)]
    charged_gpu_s_per_1000_samples: Number
    joules_per_1000_samples: Number
    unit: str
    train_flop_per_s_per_gpu: Number
    flop_per_sample: int | None
    counted_flop_per_sample: int | None
    formula_flop_per_sample: int | None
    peak_flop_per_s: Number
    precision: str | None

    @classmethod
    def of(cls, made: Cost) -> Self:
        """Return the line of a cost."""
        timing, flop, peak = made.timing, made.flop, made.peak
        return cls(
            charged_gpus=made.charged_gpus,
            charged_gpu_hours=made.gpu_hours,
            charged_gpu_s_per_1000_units=timing.per_thousand_units(made.gpu_s),
            joules=made.joules,
            joules_per_1000_units=timing.per_thousand_units(made.joules),
            flop_per_s_per_gpu=made.flop_per_s,
            utilization=made.utilization,
            charged_gpu_s_per_1000_samples=timing.per_thousand_samples(made.gpu_s),
            joules_per_1000_samples=timing.per_thousand_samples(made.joules),
            unit=timing.unit.value,
            train_flop_per_s_per_gpu=made.train_flop_per_s,
            flop_per_sample=flop.figure,
            counted_flop_per_sample=flop.counted,
            formula_flop_per_sample=flop.by_formula,
            peak_flop_per_s=peak.flop_per_s if peak else None,
            precision=peak.precision if peak else None,
        )


def cost(group: ConditionGroup, charged: Charged) -> Table | None:
    """Return what an epoch of every row costs; None without a time."""
    costed = [
        (row, made) for row in group.timed if (made := cost_of(group, row, charged(row.setup)))
    ]
    if not costed:
        return None
    costs, device = [made for _, made in costed], group.device
    unit = group.a_cell.workload.throughput_unit.value
    caption = (
        CHARGED.format(
            hours=captions.hours_unit(device),
            units=captions.units(device),
            what=captions.an_epoch(group.work),
            names=unit.capitalize(),
        ),
        *([JOULES] if any(made.joules is not None for made in costs) else []),
        flop_text(group, costs),
        peak_text(group, costs),
        clocks_text(group),
        captions.runs(group.timed),
    )
    text = TableText(LABEL, "Cost", "timed epoch", tuple(line for line in caption if line))
    notes = left_out(group, "no time", rest(group.rows, group.timed))
    heads = columns_of(
        CostLine,
        hours=captions.hours_unit(device),
        cost=captions.cost_unit(device, short=True),
        per_work=f"per {captions.work_text(group.work)}",
        thousand=f"1,000 {unit}",
        device=captions.unit(device),
    )
    lines = [(row, CostLine.of(made)) for row, made in costed]
    return line_table(group, text, lines, heads, notes)
