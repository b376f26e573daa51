"""The table of repeats: medians with intervals, spread, and every single run."""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Annotated, NamedTuple, Self

from hpml_jobs.checks.comparability import SCATTER_LIMIT
from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.statistics import RESAMPLES, Interval, Sample, ratio_interval
from hpml_jobs.core.strategies import Baseline
from hpml_jobs.extras.repeats.compared import (
    Order,
    Rival,
    compare_rows,
    comparison_text,
    order_of_runs,
    rivals,
    several,
)
from hpml_jobs.report.frame import captions, references
from hpml_jobs.report.frame.builder import (
    GroupContext,
    Number,
    Shown,
    TableText,
    columns_of,
    left_out,
    line_table,
    row_name,
    row_sheet,
)
from hpml_jobs.report.frame.numbers import count, percent, ratio, seconds
from hpml_jobs.report.frame.table import Sheet, Table
from hpml_jobs.results.decision import Comparison
from hpml_jobs.results.figures import Figures, bandwidth
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row

REPEATS = (
    "A run is a new launch. Interval: order statistics; it contains the true median with a "
    "probability of {coverage}, for any distribution. IQR: % of the median. Speedup: ratio of "
    "medians, with an interval from {resamples} bootstrap resamples of both cells' runs (at least"
    " {bootstrap}). Against {size}: the ratio of times (Hodges-Lehmann, 95 % interval); "
    "different if an exact test gives p <= 5 % (Mann-Whitney; from 6 rounds on, Wilcoxon's signed "
    "ranks within rounds) and the ratio is more than 2 % from 1."
)
RIVALS = (
    "Against the fastest strategy at the same place: the same, with p corrected (Holm) for all "
    "pairs of strategies there, because the fastest is chosen from the same times; rounds count "
    "from 6 on, of three strategies from 7."
)
ORDER = {
    Order.ROUNDS: "The runs were measured in rounds: every cell once, then every cell again.",
    Order.ROUNDS_PER_SIZE: "The runs were measured in rounds among the cells with equal {units} "
    "(one array each), not across: a machine that changes with time looks like an effect of the "
    "number of {units}.",
    Order.MIXED: "The runs were not measured in rounds: a change of the machine with time looks "
    "like a difference between cells.",
}
ONE_RUN = "single run, no interval"


def _ends(words: Callable[[float], str]) -> Callable[[Interval], str]:
    """Return how an interval is shown; the CSV has its ends instead."""
    return lambda interval: f"[{words(interval.low)}, {words(interval.high)}]"


class RepeatsLine(NamedTuple):
    """The runs of a row, their median and spread, and how they compare with the reference's."""

    runs: Annotated[int, Shown("runs")]
    epoch_s: Annotated[float, Shown("median", seconds, "{time}, s")]
    epoch: Annotated[
        Interval | None,
        Shown("interval", _ends(seconds), "{time}, s", on_page_only=True),
    ]
    epoch_spread: Annotated[Number, Shown("IQR %", percent, "{time}, s")]
    speedup: Annotated[Number, Shown("ratio", ratio, "speedup", doubt="is_doubtful")]
    speedup_interval: Annotated[
        Interval | None, Shown("interval", _ends(ratio), "speedup", on_page_only=True)
    ]
    against: Annotated[str | None, Shown("against {size}", words=True)]
    against_fastest: Annotated[
        str | None, Shown("against the fastest strategy", words=True)
    ]
    epoch_low_s: Number
    epoch_high_s: Number
    epoch_covers: Number
    against_ratio: Number
    against_p: Number
    fastest: str | None
    fastest_ratio: Number
    fastest_ratio_low: Number
    fastest_ratio_high: Number
    fastest_p: Number
    speedup_low: Number
    speedup_high: Number
    all_epoch_s: str
    left_out_epoch_s: str
    is_doubtful: bool

    @classmethod
    def of(cls, group: ConditionGroup, row: Row, rival: Rival | None) -> Self:
        """Return the line of a row; `rival` is the fastest strategy at its place, if another."""
        sample, reference = row.epochs, group.reference(row)
        of_speedup = against = of_fastest = strategy = text = None
        if reference is not None and reference is not row:
            of_speedup = ratio_interval(reference.epochs.runs, sample.runs)
            against = compare_rows(group, (row, reference))[0, 1]
        if rival is not None:
            of_fastest, text = rival.comparison, rival.text
            strategy = rival.fastest.strategy.value
        low, high, coverage = sample.interval or NO_INTERVAL
        speedup_low, speedup_high, _ = of_speedup or NO_INTERVAL
        compared, fastest = _Compared.of(against), _Compared.of(of_fastest)
        records = group.records(row)
        left = {run.slug for run in row.left_out if run.role is Role.TIMED}
        return cls(
            runs=len(row.runs),
            epoch_s=sample.median,
            epoch=sample.interval,
            epoch_spread=sample.spread,
            speedup=row.speedup,
            speedup_interval=of_speedup,
            against=comparison_text(against) if against else None,
            against_fastest=text,
            epoch_low_s=low,
            epoch_high_s=high,
            epoch_covers=coverage,
            against_ratio=compared.ratio,
            against_p=compared.p,
            fastest=strategy,
            fastest_ratio=fastest.ratio,
            fastest_ratio_low=fastest.low,
            fastest_ratio_high=fastest.high,
            fastest_p=fastest.p,
            speedup_low=speedup_low,
            speedup_high=speedup_high,
            all_epoch_s=" ".join(str(record.epoch_s) for record in records),
            left_out_epoch_s=" ".join(
                str(record.epoch_s) for record in records if record.slug in left
            ),
            is_doubtful=group.doubts_ratio(row),
        )


NO_INTERVAL = (None, None, None)
"""The ends and the coverage where there are too few runs for an interval."""


class _Compared(NamedTuple):
    """The figures of a comparison: the ratio, the ends of its interval, p; None without one."""

    ratio: Number = None
    low: Number = None
    high: Number = None
    p: Number = None

    @classmethod
    def of(cls, comparison: Comparison | None) -> Self:
        """Return the figures of a comparison."""
        if comparison is None:
            return cls()
        estimate, interval = comparison.ratio
        low, high, _ = interval or NO_INTERVAL
        return cls(estimate, low, high, comparison.p)


RIVAL_FIELDS = (
    *(
        "against_fastest",
        "fastest",
        "fastest_ratio",
        "fastest_ratio_low",
        "fastest_ratio_high",
    ),
    "fastest_p",
)


def repeats(context: GroupContext) -> Table | None:
    """Return medians, intervals and spread of every place; None with one run of each."""
    group = context.group
    if not several(group):
        return None
    size = references.size_text(group.timed, group.device)
    against = "against_1" if group.baseline is Baseline.SINGLE else "against_reference"
    beside = rivals(group)
    lines = []
    for row in group.timed:
        lines.append((row, RepeatsLine.of(group, row, beside.get(row.place))))
    heads = columns_of(
        RepeatsLine,
        without=[] if beside else RIVAL_FIELDS,
        in_csv={f"against{end}": f"{against}{end}" for end in ("", "_ratio", "_p")},
        time=captions.time_word(group.work),
        size=size,
    )
    single = [row for row in group.timed if len(row.runs) == 1]
    notes = [
        *captions.left_out_runs(group.timed, group.device),
        *_scattered(group),
        *left_out(group, ONE_RUN, single),
    ]
    how = [REPEATS.format(size=size, **_counts([line for _, line in lines]))]
    if beside:
        how.append(RIVALS)
    order = order_of_runs(group)
    if order is not None:
        how.append(ORDER[order].format(units=captions.units(group.device)))
    text = TableText("repeats", "Repeats", "timed epoch", tuple(how))
    return line_table(group, text, lines, heads, notes)


def _counts(lines: Sequence[RepeatsLine]) -> dict[str, str]:
    """Return the numbers in the caption: resamples, and the coverage of intervals."""
    return {
        "resamples": count(RESAMPLES),
        "coverage": _coverages((line.runs, line.epoch) for line in lines),
        "bootstrap": _coverages((line.runs, line.speedup_interval) for line in lines),
    }


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
            records = group.counted_records(row, Affected.TIME)
            times = ", ".join(seconds(record.epoch_s) for record in records)
            lines.append(
                f"{row_name(group, row)}: the runs scatter: IQR {percent(sample.spread)} % "
                f"of the median (limit 10 %); runs: {times} s"
            )
    return lines


def measured(group: ConditionGroup) -> Sheet | None:
    """Return medians and order-statistic intervals of the instrumented epoch's values.

    None with one run of each.
    """
    rows = [
        row for row in group.timed if row.gpus > 1 and row.figures.compute_s is not None
    ]
    if not several(group) or not rows:
        return None
    columns: list[str] = []
    for name, unit, _ in _MEASURED:
        columns += (f"{name}{unit}", f"{name}_low{unit}", f"{name}_high{unit}")
    lines = [(row, _values(row)) for row in rows]
    return row_sheet(group, tuple(columns), lines)


def _values(row: Row) -> tuple[Number, ...]:
    return tuple(chain(*(_over_runs(row, of_run) for _, _, of_run in _MEASURED)))


OfRun = Callable[[Row, Figures], float | None]


def _speed_of_run(row: Row, run: Figures) -> float | None:
    timing = row.timing
    if timing is None:
        return None
    speeds = bandwidth(
        run, row.strategy, row.gpus, timing.iterations, timing.gradient_bytes
    )
    return speeds.lab_gb_per_s if speeds else None


_MEASURED: tuple[tuple[str, str, OfRun], ...] = (
    ("compute", "_s", lambda _, run: run.compute_s),
    ("comm", "_s", lambda _, run: run.comm_s),
    ("comm_exposed", "_s", lambda _, run: run.comm_exposed_s),
    ("bandwidth", "_gb_per_s", _speed_of_run),
)
"""Each value's name and unit in the sheet, and its number of a run."""


def _over_runs(row: Row, of_run: OfRun) -> tuple[Number, Number, Number]:
    """Return a value's median over the runs that have it, and the ends of its interval."""
    values = tuple(value for run in row.runs if (value := of_run(row, run)) is not None)
    if not values:
        return None, None, None
    sample = Sample(values)
    low, high, _ = sample.interval or NO_INTERVAL
    return sample.median, low, high
