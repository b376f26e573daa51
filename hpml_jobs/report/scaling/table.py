"""Full table of time, throughput and scaling."""

from collections.abc import Iterator
from typing import Annotated, NamedTuple

from hpml_jobs.core.built_in import Unit
from hpml_jobs.core.strategies import Baseline
from hpml_jobs.report.frame import captions, references
from hpml_jobs.report.frame.builder import (
    Number,
    Shown,
    TableText,
    columns_of,
    left_out,
    line_table,
)
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import per_second, ratio, seconds
from hpml_jobs.report.frame.rows import Row
from hpml_jobs.report.frame.table import Table

SCALING = (
    "{what}; in stall the device waits for a batch{sum}. {unit}/s: {processed} processed, padding "
    "of the sampler included, / epoch. Step: median of the iterations with a full batch. "
)
TOKENS = "tokens of the samples"
FROM_RATE = (
    "{unit}/s: as reported, of all {units} together; time: seconds of {what} at this rate. "
    "Step: the mean duration of an iteration at this rate. "
)
AGAINST_1 = (
    "Speedup: {time}(1, b) / {time}(N, b); effic.: speedup / N; weak: step(1, b) / step(N, b) at "
    "the same batch per {unit}; cost/t: 1 / effic. - 1, the cost of N {units} per second of "
    "computation on 1."
)
AGAINST_SMALLEST = (
    "Speedup: {time}(g, b) / {time}(N, b), where g is {size}; effic.: speedup x g / N; weak: "
    "step(g, b) / step(N, b) at the same batch per {unit}."
)
OWN_SMALLEST = "the smallest size of the strategy at the batch, 1 {unit} where there is such a cell"
NO_COST = "cost/t: needs a single-{unit} cell; a larger reference communicates, too"
MEASURED = (
    "Epoch: the longest of all ranks; train + stall = epoch of the rank with the largest stall in "
    "every run"
)
REPORTED = "As reported by the source: epoch = train + stall"
MEDIANS = " (medians of several runs need not add up)"
NO_STEP = "weak: the duration of an iteration is not reported"
ONE_RUN = "single run each: strategies at the same place are not comparable; use repeats=6"


def scaling(group: ConditionGroup) -> Table | None:
    """Return time, throughput and every ratio to the baseline; None without any number."""
    if not group.timed:
        return None
    missing = left_out(group, "", (row for row in group.rows if not row.timing))
    several = strategies_meet(group) and all(len(row.runs) == 1 for row in group.timed)
    unit = captions.unit(group.device)
    what = REPORTED if group.imported else MEASURED
    several_runs = any(len(row.runs) > 1 for row in group.timed)
    counted = group.a_cell.workload.throughput_unit
    if group.rate_units:
        first = FROM_RATE.format(
            unit=counted.value,
            units=captions.units(group.device),
            what=captions.one_work(group.work),
        )
    else:
        first = SCALING.format(
            what=what,
            sum=MEDIANS if several_runs else "",
            unit=counted.value,
            processed=TOKENS if counted is Unit.TOKENS else "samples",
        )
    caption = first + _against(group)
    text = TableText("scaling", "Scaling", "timed epoch", (caption, captions.runs(group.rows)))
    no_step = any(row.timing and row.timing.step_s is None for row in group.timed)
    notes = [
        *captions.without_train(group, group.timed),
        *([NO_STEP] if no_step else []),
        *([NO_COST.format(unit=unit)] if references.without_plain_loop(group) else []),
        *missing,
        *([ONE_RUN] if several else []),
    ]
    heads = columns_of(
        ScalingLine,
        without=["is_doubtful", *(["images_per_s"] if counted is Unit.TOKENS else [])],
        time=captions.time_word(group.work),
        unit=counted.value,
        against=references.head(group.timed, group.device),
    )
    return line_table(group, text, list(_lines(group)), heads, notes)


def _against(group: ConditionGroup) -> str:
    """Return how the ratios are defined."""
    unit, units = captions.unit(group.device), captions.units(group.device)
    time = captions.time_word(group.work)
    if group.baseline is Baseline.SINGLE:
        return AGAINST_1.format(time=time, unit=unit, units=units)
    numbers = references.sizes(group.timed)
    size = str(numbers[0]) if len(numbers) == 1 else OWN_SMALLEST.format(unit=unit)
    return AGAINST_SMALLEST.format(time=time, size=size, unit=unit)


class ScalingLine(NamedTuple):
    """Seconds, throughput and ratios of a row; `reference_gpus` is what the ratios are against."""

    epoch_s: Annotated[float, Shown("{time}", seconds, "seconds")]
    train_s: Annotated[Number, Shown("train", seconds, "seconds")]
    stall_s: Annotated[Number, Shown("stall", seconds, "seconds")]
    step_s: Annotated[Number, Shown("step", seconds, "seconds")]
    units_per_s: Annotated[Number, Shown("{unit}/s", per_second)]
    unit: str
    images_per_s: Number
    speedup: Annotated[Number, Shown("speedup", ratio, "{against}", doubt="is_doubtful")]
    efficiency: Annotated[Number, Shown("effic.", ratio, "{against}", doubt="is_doubtful")]
    weak_efficiency: Annotated[Number, Shown("weak", ratio, "{against}", doubt="is_doubtful")]
    cost_per_compute: Annotated[Number, Shown("cost/t", ratio, "{against}", doubt="is_doubtful")]
    reference_gpus: int | None
    work_samples: int | None
    is_doubtful: bool


def _lines(group: ConditionGroup) -> Iterator[tuple[Row, ScalingLine]]:
    for row in group.timed:
        if timing := row.timing:
            yield (
                row,
                ScalingLine(
                    epoch_s=timing.epoch_s,
                    train_s=timing.train_s,
                    stall_s=timing.stall_s,
                    step_s=timing.step_s,
                    units_per_s=timing.units_per_s,
                    unit=timing.unit.value,
                    images_per_s=timing.units_per_s,
                    speedup=row.speedup,
                    efficiency=row.scaling.efficiency if row.scaling else None,
                    weak_efficiency=row.scaling.weak_efficiency if row.scaling else None,
                    cost_per_compute=row.scaling.cost_per_compute if row.scaling else None,
                    reference_gpus=row.reference.gpus if row.reference else None,
                    work_samples=timing.work.samples if timing.work else None,
                    is_doubtful=group.doubts_ratio(row),
                ),
            )


def strategies_meet(group: ConditionGroup) -> bool:
    """Return whether two strategies were measured at the same place."""
    places = [
        (e.gpus, e.nodes, e.treatment, e.batch_per_gpu) for e in group.timed if not e.is_baseline
    ]
    return len(set(places)) < len(places)
