"""Full table of the cost of an epoch: GPU-hours, joules, and the FLOP/s reached for them."""

from typing import Annotated, NamedTuple, Self

from hpml_jobs.report.choose import words as choice_words
from hpml_jobs.report.choose.rules import Charged
from hpml_jobs.report.cost import words
from hpml_jobs.report.cost.rules import Cost, cost_of
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
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import percent, three_digits
from hpml_jobs.report.frame.table import Table

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
    flop_per_s_per_gpu: Annotated[Number, Shown("TFLOP/s per {device}", words.tflop_per_s)]
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
            hours=choice_words.hours_unit(device),
            units=captions.units(device),
            what=captions.an_epoch(group.work),
            names=unit.capitalize(),
        ),
        *([JOULES] if any(made.joules is not None for made in costs) else []),
        words.flop_text(group, costs),
        words.peak_text(group, costs),
        words.clocks_text(group),
        captions.runs(group.timed),
    )
    text = TableText(
        LABEL, "Cost", "timed epoch", tuple(line for line in caption if line), on_screen=False
    )
    notes = [
        *words.published_notes(group, costs),
        *left_out(group, "no time", rest(group.rows, group.timed)),
    ]
    heads = columns_of(
        CostLine,
        hours=choice_words.hours_unit(device),
        cost=choice_words.cost_unit(device, short=True),
        per_work=f"per {captions.work_text(group.work)}",
        thousand=f"1,000 {unit}",
        device=captions.unit(device),
    )
    lines = [(row, CostLine.of(made)) for row, made in costed]
    return line_table(group, text, lines, heads, notes)
