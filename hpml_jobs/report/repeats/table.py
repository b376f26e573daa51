"""Full tables of repeats: medians with intervals, spread, and every single run."""

from collections.abc import Callable, Iterable
from typing import Annotated, NamedTuple, Self

from hpml_jobs.checks.comparability import SCATTER_LIMIT
from hpml_jobs.checks.result import Affected
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.statistics import (
    RESAMPLES,
    Interval,
    Sample,
    ratio_interval,
)
from hpml_jobs.core.strategies import Baseline
from hpml_jobs.report.frame import captions, references
from hpml_jobs.report.frame.builder import (
    Column,
    Columns,
    Number,
    Shown,
    TableText,
    column,
    columns_of,
    left_out,
    line_table,
    row_name,
)
from hpml_jobs.report.frame.figures import Figures, bandwidth
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import count, gb_per_s, percent, ratio, seconds
from hpml_jobs.report.frame.rows import Row
from hpml_jobs.report.frame.table import Table
from hpml_jobs.report.repeats.compared import (
    Order,
    compare_rows,
    comparison_text,
    order_of_runs,
    several,
)

REPEATS = (
    "A run is a new launch. Interval: order statistics; it contains the true median with a "
    "probability of {coverage}, for any distribution. IQR: % of the median. Speedup: ratio of "
    "medians, with an interval from {resamples} bootstrap resamples of both cells' runs (at least"
    " {bootstrap}). Against {size}: the ratio of times (Hodges-Lehmann, 95 % interval); "
    "different if an exact test gives p <= 5 % (Mann-Whitney; from 6 rounds on, Wilcoxon's signed "
    "ranks within rounds) and the ratio is more than 2 % from 1."
)
ORDER = {
    Order.ROUNDS: "The runs were measured in rounds: every cell once, then every cell again.",
    Order.ROUNDS_PER_SIZE: "The runs were measured in rounds among the cells with equal {units} "
    "(one array each), not across: a machine that changes with time looks like an effect of the "
    "number of {units}.",
    Order.MIXED: "The runs were not measured in rounds: a machine that changes with time looks "
    "like a difference between cells.",
}
MEASURED = "Medians over runs with order-statistic intervals, as in the table Repeats."
ONE_RUN = "single run, no interval"


def _ends(words: Callable[[float], str]) -> Callable[[Interval], str]:
    """Return how an interval is shown; the CSV has its ends instead."""
    return lambda interval: f"[{words(interval.low)}, {words(interval.high)}]"


class RepeatsLine(NamedTuple):
    """The runs of a row, their median and spread, and how they compare with the reference's."""

    runs: Annotated[int, Shown("runs")]
    epoch_s: Annotated[float, Shown("median", seconds, "{time}, s")]
    epoch: Annotated[
        Interval | None, Shown("interval", _ends(seconds), "{time}, s", on_page_only=True)
    ]
    epoch_spread: Annotated[Number, Shown("IQR %", percent, "{time}, s")]
    speedup: Annotated[Number, Shown("ratio", ratio, "speedup", doubt="is_doubtful")]
    speedup_interval: Annotated[
        Interval | None, Shown("interval", _ends(ratio), "speedup", on_page_only=True)
    ]
    against: Annotated[str | None, Shown("against {size}", words=True)]
    epoch_low_s: Number
    epoch_high_s: Number
    epoch_covers: Number
    against_ratio: Number
    against_p: Number
    speedup_low: Number
    speedup_high: Number
    all_epoch_s: str
    left_out_epoch_s: str
    is_doubtful: bool

    @classmethod
    def of(cls, group: ConditionGroup, row: Row) -> Self:
        """Return the line of a row."""
        sample, of_speedup, reference = row.epochs, None, group.reference(row)
        against, epoch = None, sample.interval
        if reference is not None and reference is not row:
            of_speedup = ratio_interval(reference.epochs.runs, sample.runs)
            against = compare_rows(group, (row, reference))[0, 1]
        records, left = group.records(row), {r.slug for r in row.left_out if r.role is Role.TIMED}
        return cls(
            runs=len(row.runs),
            epoch_s=sample.median,
            epoch=epoch,
            epoch_spread=sample.spread,
            speedup=row.speedup,
            speedup_interval=of_speedup,
            against=comparison_text(against) if against else None,
            epoch_low_s=epoch.low if epoch else None,
            epoch_high_s=epoch.high if epoch else None,
            epoch_covers=epoch.coverage if epoch else None,
            against_ratio=against.ratio.estimate if against else None,
            against_p=against.p if against else None,
            speedup_low=of_speedup.low if of_speedup else None,
            speedup_high=of_speedup.high if of_speedup else None,
            all_epoch_s=" ".join(str(record.epoch_s) for record in records),
            left_out_epoch_s=" ".join(str(r.epoch_s) for r in records if r.slug in left),
            is_doubtful=group.doubts_ratio(row),
        )


def repeats(group: ConditionGroup) -> Table | None:
    """Return medians, intervals and spread of every place; None with one run of each."""
    if not several(group):
        return None
    size = references.size_text(group.timed, group.device)
    against = "against_1" if group.baseline is Baseline.SINGLE else "against_reference"
    lines = [(row, RepeatsLine.of(group, row)) for row in group.timed]
    heads = columns_of(
        RepeatsLine,
        in_csv={f"against{end}": f"{against}{end}" for end in ("", "_ratio", "_p")},
        time=captions.time_word(group.work),
        size=size,
    )
    caption = REPEATS.format(
        size=size,
        resamples=count(RESAMPLES),
        coverage=_coverages((line.runs, line.epoch) for _, line in lines),
        bootstrap=_coverages((line.runs, line.speedup_interval) for _, line in lines),
    )
    notes = [
        *captions.left_out_runs(group.timed, group.device),
        *_scattered(group),
        *left_out(group, ONE_RUN, (row for row in group.timed if len(row.runs) == 1)),
    ]
    order = order_of_runs(group)
    how = [ORDER[order].format(units=captions.units(group.device))] if order else []
    text = TableText("repeats", "Repeats", "timed epoch", (caption, *how))
    return line_table(group, text, lines, heads, notes)


def _coverages(intervals: Iterable[tuple[int, Interval | None]]) -> str:
    """Return `50.0 % (2 runs), 96.9 % (6 runs)`, by the interval of the last row of each number."""
    return ", ".join(
        f"{percent(interval.coverage)} % ({runs} runs)"
        for runs, interval in sorted(dict(intervals).items())
        if interval
    )


def _scattered(group: ConditionGroup) -> list[str]:
    """Return all runs of the places that scatter widely; none of them is dropped."""
    lines = []
    for row in group.timed:
        sample = row.epochs
        if sample.spread is not None and sample.spread > SCATTER_LIMIT:
            times = ", ".join(map(seconds, sample.runs))
            lines.append(
                f"{row_name(group, row)}: the runs scatter: IQR {percent(sample.spread)} % "
                f"of the median (limit 10 %); runs: {times} s"
            )
    return lines


def measured(group: ConditionGroup) -> Table | None:
    """Return intervals of the instrumented epoch's values; None with one run of each."""
    rows = [row for row in group.timed if row.gpus > 1 and row.figures.compute_s is not None]
    if not several(group) or not rows:
        return None
    heads = [columns for value in _MEASURED for columns in _heads(*value)]
    text = TableText(
        "repeats-measured",
        "Repeats of the instrumented epoch",
        "instrumented epoch",
        (MEASURED,),
        on_screen=False,
        affected=Affected.SPLIT,
    )
    notes = left_out(group, ONE_RUN, (row for row in rows if len(row.runs) == 1))
    return line_table(group, text, [(row, row) for row in rows], heads, notes)


OfRun = Callable[[Row, Figures], float | None]


def _speed_of_run(row: Row, run: Figures) -> float | None:
    timing = row.timing
    if timing is None:
        return None
    speeds = bandwidth(run, row.strategy, row.gpus, timing.iterations, timing.gradient_bytes)
    return speeds.lab_gb_per_s if speeds else None


_MEASURED: tuple[tuple[str, str, str, OfRun, Callable[[float], str]], ...] = (
    ("compute", "_s", "Compute, s", lambda _, run: run.compute_s, seconds),
    ("comm", "_s", "Comm, s", lambda _, run: run.comm_s, seconds),
    ("comm_exposed", "_s", "exposed, s", lambda _, run: run.comm_exposed_s, seconds),
    ("bandwidth", "_gb_per_s", "Table 3, GB/s", _speed_of_run, gb_per_s),
)


def _heads(
    name: str, unit: str, head: str, of: OfRun, words: Callable[[float], str]
) -> tuple[Columns[Row], Columns[Row]]:
    """Return the columns of a value: its median and interval over runs, and the interval's ends."""

    def sample(row: Row) -> Sample | None:
        values = tuple(value for run in row.runs if (value := of(row, run)) is not None)
        return Sample(values) if values else None

    def interval(row: Row) -> Interval | None:
        return (of_row := sample(row)) and of_row.interval

    median: Column[Row] = column(
        f"{name}{unit}", "median", lambda row: (of_row := sample(row)) and of_row.median, words
    )
    return Columns(head, (median, column("", "interval", interval, _ends(words)))), Columns(
        "",
        (
            column(f"{name}_low{unit}", "", lambda row: (i := interval(row)) and i.low),
            column(f"{name}_high{unit}", "", lambda row: (i := interval(row)) and i.high),
        ),
    )
