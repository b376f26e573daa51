"""Full tables of repeats: medians with intervals, spread, and every single run."""

from collections.abc import Callable, Iterable

from hpml_jobs.checks.comparability import SCATTER_LIMIT
from hpml_jobs.checks.result import Affected
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.record import Record
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
    TableText,
    column,
    left_out,
    row_name,
    row_table,
)
from hpml_jobs.report.frame.captions import left_out_runs
from hpml_jobs.report.frame.decision import Comparison
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


def repeats(group: ConditionGroup) -> Table | None:
    """Return medians, intervals and spread of every place; None with one run of each."""
    if not several(group):
        return None
    size = references.size_text(group.timed, group.device)
    against = "against_1" if group.baseline is Baseline.SINGLE else "against_reference"
    speedup: Column[Row] = column("speedup", "ratio", lambda e: e.speedup, ratio)
    compared = {row.place: _against(group, row) for row in group.timed}

    def epochs(row: Row) -> Interval | None:
        return row.epochs.interval

    def speedups(row: Row) -> Interval | None:
        return _speedup_interval(group, row)

    def left_out_epochs(row: Row) -> str:
        left = {run.slug for run in row.left_out if run.role is Role.TIMED}
        return _epochs_text(record for record in group.records(row) if record.slug in left)

    heads: tuple[Columns[Row], ...] = (
        Columns("runs", (column("runs", "", lambda row: len(row.runs)),)),
        Columns(
            f"{captions.time_word(group.work)}, s",
            (
                column("epoch_s", "median", lambda e: e.epochs.median, seconds),
                interval_text(epochs, seconds),
                column("epoch_spread", "IQR %", lambda e: e.epochs.spread, percent),
            ),
        ),
        Columns(
            "speedup",
            (
                speedup.marked_if(group.doubts_ratio),
                interval_text(speedups, ratio),
            ),
        ),
        Columns(
            f"against {size}",
            (column(against, "", lambda e: (c := compared[e.place]) and comparison_text(c)),),
            words=True,
        ),
        ends("epoch", "_s", epochs),
        Columns("", (column("epoch_covers", "", lambda e: (i := epochs(e)) and i.coverage),)),
        Columns(
            "",
            (
                column(
                    f"{against}_ratio", "", lambda e: (c := compared[e.place]) and c.ratio.estimate
                ),
                column(f"{against}_p", "", lambda e: (c := compared[e.place]) and c.p),
            ),
        ),
        ends("speedup", "", speedups),
        Columns("", (column("all_epoch_s", "", lambda e: _epochs_text(group.records(e))),)),
        Columns("", (column("left_out_epoch_s", "", left_out_epochs),)),
    )
    caption = REPEATS.format(
        size=size,
        resamples=count(RESAMPLES),
        coverage=_coverages(group, epochs),
        bootstrap=_coverages(group, speedups),
    )
    notes = [
        *left_out_runs(group.timed, group.device),
        *_scattered(group),
        *left_out(group, ONE_RUN, (row for row in group.timed if len(row.runs) == 1)),
    ]
    order = order_of_runs(group)
    lines = (caption, *([ORDER[order].format(units=captions.units(group.device))] if order else []))
    text = TableText("repeats", "Repeats", "timed epoch", lines)
    return row_table(group, text, group.timed, heads, notes)


def _epochs_text(records: Iterable[Record]) -> str:
    return " ".join(str(record.epoch_s) for record in records)


def interval_text(
    of: Callable[[Row], Interval | None], words: Callable[[float], str]
) -> Column[Row]:
    """Return the column of an interval as text; the CSV has its ends instead."""
    return column(
        "", "interval", of, lambda interval: f"[{words(interval.low)}, {words(interval.high)}]"
    )


def ends(name: str, unit: str, of: Callable[[Row], Interval | None]) -> Columns[Row]:
    """Return the columns of an interval's ends, for the CSV."""
    return Columns(
        "",
        (
            column(f"{name}_low{unit}", "", lambda row: (found := of(row)) and found.low),
            column(f"{name}_high{unit}", "", lambda row: (found := of(row)) and found.high),
        ),
    )


def _coverages(group: ConditionGroup, of: Callable[[Row], Interval | None]) -> str:
    """Return `50.0 % (2 runs), 96.9 % (6 runs)`."""
    intervals = {len(row.runs): of(row) for row in group.timed}
    return ", ".join(
        f"{percent(interval.coverage)} % ({runs} runs)"
        for runs, interval in sorted(intervals.items())
        if interval
    )


def _speedup_interval(group: ConditionGroup, row: Row) -> Interval | None:
    reference = group.reference(row)
    if reference is None or reference is row:
        return None
    return ratio_interval(reference.epochs.runs, row.epochs.runs)


def _against(group: ConditionGroup, row: Row) -> Comparison | None:
    reference = group.reference(row)
    if reference is None or reference is row:
        return None
    return compare_rows(group, (row, reference))[0, 1]


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
    return row_table(group, text, rows, heads, notes)


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
    return Columns(head, (median, interval_text(interval, words))), ends(name, unit, interval)
