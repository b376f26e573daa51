"""Full table of time, throughput and scaling."""

from hpml_jobs.core.built_in import Unit
from hpml_jobs.core.strategies import Baseline
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.rows import Row
from hpml_jobs.report.table import Table
from hpml_jobs.report.tables.builder import (
    Columns,
    TableText,
    column,
    left_out,
    row_table,
)
from hpml_jobs.report.tables.lab import without_train
from hpml_jobs.report.text import captions, references
from hpml_jobs.report.text.numbers import per_second, ratio, seconds

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
    "E1: epoch is the longest of all ranks; train + stall = epoch of the rank with the largest "
    "stall in every run"
)
REPORTED = "As reported by the source: epoch = train + stall"
MEDIANS = " (medians of several runs need not add up)"
AGAINST = "against 1, same batch"
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
    text = TableText("scaling", "Scaling", "E1", (caption, captions.runs(group.rows)))
    no_step = any(row.timing and row.timing.step_s is None for row in group.timed)
    notes = [
        *without_train(group, group.timed),
        *([NO_STEP] if no_step else []),
        *([NO_COST.format(unit=unit)] if references.without_plain_loop(group) else []),
        *missing,
        *([ONE_RUN] if several else []),
    ]
    return row_table(group, text, group.timed, _heads(group), notes)


def _against(group: ConditionGroup) -> str:
    """Return how the ratios are defined."""
    unit, units = captions.unit(group.device), captions.units(group.device)
    time = captions.time_word(group.work)
    if group.baseline is Baseline.SINGLE:
        return AGAINST_1.format(time=time, unit=unit, units=units)
    numbers = references.sizes(group.timed)
    size = str(numbers[0]) if len(numbers) == 1 else OWN_SMALLEST.format(unit=unit)
    return AGAINST_SMALLEST.format(time=time, size=size, unit=unit)


def _heads(group: ConditionGroup) -> tuple[Columns[Row], ...]:
    """Return the columns, with the unit of the throughput and what the ratios are against."""
    unit = group.a_cell.workload.throughput_unit
    names = {
        "units/s": f"{unit.value}/s",
        AGAINST: references.head(group.timed, group.device),
    }
    time = captions.time_word(group.work)
    return tuple(
        head._replace(
            head=names.get(head.head, head.head),
            columns=tuple(
                column._replace(
                    head=time if column.head == "epoch" else column.head,
                    is_doubtful=group.doubts_ratio if head.head == AGAINST else column.is_doubtful,
                )
                for column in head.columns
                if column.name != "images_per_s" or unit is not Unit.TOKENS
            ),
        )
        for head in _HEADS
    )


def strategies_meet(group: ConditionGroup) -> bool:
    """Return whether two strategies were measured at the same place."""
    places = [
        (e.gpus, e.nodes, e.treatment, e.batch_per_gpu) for e in group.timed if not e.is_baseline
    ]
    return len(set(places)) < len(places)


def _units_per_s(row: Row) -> float | None:
    return row.timing.units_per_s if row.timing else None


def _work_samples(row: Row) -> int | None:
    return row.timing.work.samples if row.timing and row.timing.work else None


_HEADS: tuple[Columns[Row], ...] = (
    Columns(
        "seconds",
        (
            column(
                "epoch_s", "epoch", lambda row: row.timing.epoch_s if row.timing else None, seconds
            ),
            column(
                "train_s", "train", lambda row: row.timing.train_s if row.timing else None, seconds
            ),
            column(
                "stall_s", "stall", lambda row: row.timing.stall_s if row.timing else None, seconds
            ),
            column(
                "step_s", "step", lambda row: row.timing.step_s if row.timing else None, seconds
            ),
        ),
    ),
    Columns("units/s", (column("units_per_s", "", _units_per_s, per_second),)),
    Columns(
        "",
        (
            column("unit", "", lambda row: row.timing.unit.value if row.timing else None),
            column("images_per_s", "", _units_per_s),
        ),
    ),
    Columns(
        AGAINST,
        (
            column("speedup", "speedup", lambda row: row.speedup, ratio),
            column(
                "efficiency",
                "effic.",
                lambda row: row.scaling.efficiency if row.scaling else None,
                ratio,
            ),
            column(
                "weak_efficiency",
                "weak",
                lambda row: row.scaling.weak_efficiency if row.scaling else None,
                ratio,
            ),
            column(
                "cost_per_compute",
                "cost/t",
                lambda row: row.scaling.cost_per_compute if row.scaling else None,
                ratio,
            ),
        ),
    ),
    Columns(
        "",
        (
            column("reference_gpus", "", lambda r: r.reference.gpus if r.reference else None),
            column("work_samples", "", _work_samples),
        ),
    ),
)
