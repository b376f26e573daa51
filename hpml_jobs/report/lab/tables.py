"""The lab's tables: Q1, and Tables 1, 2 and 3 of a strategy, measured and by residual (2r, 3r)."""

from collections.abc import Callable, Iterable

from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.rank import least_waiting
from hpml_jobs.core.strategies import Baseline, Device, Strategy
from hpml_jobs.core.value import Value
from hpml_jobs.report.frame import captions, references
from hpml_jobs.report.frame.numbers import (
    DASH,
    aside,
    count,
    percent,
    seconds,
    three_digits,
)
from hpml_jobs.report.frame.table import Column, Line, Table, TableText
from hpml_jobs.report.lab.selection import (
    StrategyRows,
    absent,
    dash_or_oom,
    strategy_rows,
    strategy_table,
)
from hpml_jobs.report.lab.words import (
    BANDWIDTH,
    HIDDEN_COST,
    MEASURED,
    OF_PEAK,
    OF_WINDOW,
    PACKED,
    Q1,
    REPORTED,
    RESIDUAL,
    RESIDUAL_LOADING,
    WITH_OTHER,
    kernels_in_new_threads,
    kernels_of_one_run,
    loader_workers,
    time,
)
from hpml_jobs.results.checks.waiting import IMBALANCE_LIMIT
from hpml_jobs.results.figures import PEAK_FROM_BYTES
from hpml_jobs.results.groups import ConditionGroup, pairs
from hpml_jobs.results.rows import Row, speedup_interval


class StrategyTables(Value, frozen=True, kw_only=True):
    """Tables 1, 2 and 3 of one strategy, measured and by residual, and the rows in them.

    `unmeasured`: why a script has no Tables 2 and 3; empty if it has, or is none.
    """

    strategy: Strategy
    rows: tuple[Row, ...]
    tables: tuple[Table, ...]
    unmeasured: str


def q1(group: ConditionGroup) -> Table:
    """Return the time of one epoch on one GPU for each batch."""
    baselines = [row for row in group.rows if row.is_baseline]
    places = {row.place for row in baselines}
    unit = captions.unit(group.device)
    what = captions.one_work(group.work)
    return Table(
        label="q1",
        title=f"Q1: {what} on 1 {unit}",
        corner="batch",
        columns=tuple(map(Column, ("train_s", "Time(s)", "iterations"))),
        lines=tuple(
            Line(
                f"{row.batch_per_gpu}{aside(row.path)}",
                _q1(row, is_doubtful=group.doubts(row, Affected.TIME)),
            )
            for row in baselines
        ),
        caption=(
            Q1.format(unit=unit, what=what),
            f"{captions.runs(baselines)} {loader_workers(baselines, group.device)}",
        ),
        setting=captions.setting(group),
        notes=(
            *captions.explained(group, baselines, Affected.TIME),
            *captions.without_train(baselines),
            *_without_iterations(group, baselines),
            *absent(group, baselines, places),
        ),
    )


def _without_iterations(group: ConditionGroup, rows: Iterable[Row]) -> list[str]:
    unknown = any(row.timing and row.timing.iterations is None for row in rows)
    name = group.a_cell.workload.samples_name
    return [f"Iterations: the number of {name} is not reported."] if unknown else []


def _q1(row: Row, *, is_doubtful: bool) -> tuple[str, ...]:
    timing = row.timing
    if timing is None:
        return dash_or_oom(row), DASH, DASH
    train_s = DASH if timing.train_s is None else seconds(timing.train_s)
    iterations = DASH if timing.iterations is None else count(timing.iterations)
    times = (train_s, seconds(timing.epoch_s))
    return *(captions.mark(time, is_doubtful=is_doubtful) for time in times), iterations


def table1(selection: StrategyRows) -> Table:
    """Return the table of time and speedup."""
    group = selection.group
    rows = selection.rows
    device = selection.group.device
    caption = (
        f"{time(group)} Speedup: Time of {references.size_text(rows, device)} / Time.",
        f"{references.baseline(group, rows, selection.batches)} {captions.runs(rows)}",
        loader_workers(rows, device),
        *kernels_of_one_run(group, rows),
        *kernels_in_new_threads(group, selection.strategy),
    )
    text = TableText("table1", "Table 1: time and speedup", "Table 1", caption)
    notes = [
        *captions.explained(group, rows, Affected.TIME),
        *absent(group, rows, selection.places),
        *_note(selection, SPEEDUP_INTERVAL, lambda row: _speedup(row, group)),
        *_elsewhere(selection),
    ]
    names = ("time_s", "speedup")
    plain = [setup for setup in selection.setups if setup.is_plain]
    return strategy_table(selection, text, plain or selection.setups, names, notes)


SPEEDUP_INTERVAL = "speedup with its interval, and what that covers at least"


def _speedup(row: Row, group: ConditionGroup) -> str | None:
    """Return a speedup with its interval; None of single runs."""
    reference = group.reference(row)
    if reference is None or row.speedup is None:
        return None
    interval = speedup_interval(reference, row)
    runs = min(len(row.runs), len(reference.runs))
    if interval is None or row is reference or runs == 1:
        return None
    ends = f"[{three_digits(interval.low)}, {three_digits(interval.high)}]"
    text = f"{three_digits(row.speedup)} {ends}, {percent(interval.coverage)} %"
    return captions.mark(text, is_doubtful=group.doubts_ratio(row))


SAME_GLOBAL_BATCH = "speedups at the same global batch are in the table Scaling"


def _elsewhere(selection: StrategyRows) -> list[str]:
    """Return where the speedups are of a strategy that has them at the same global batch only."""
    in_strong = {pair.parallel.place for pair in pairs(selection.group)}
    parallel = [row for row in selection.parallel_rows if row.timing]
    if any(row.speedup is not None for row in parallel):
        return []
    has_strong = any(row.place in in_strong for row in parallel)
    return [SAME_GLOBAL_BATCH] if has_strong else []


def _of_window(selection: StrategyRows) -> tuple[str, ...]:
    group = selection.group
    if all(record.per_instrumented == 1 for record in selection.parallel_records):
        return ()
    part = "the third window" if group.work else "the beginning of the third epoch"
    return (OF_WINDOW.format(part=part, what=captions.work_text(group.work)),)


def table2(selection: StrategyRows) -> Table:
    """Return the measured seconds of computation and of communication."""
    caption = (*_how_split(selection), captions.runs(selection.parallel_rows))
    text = TableText(
        "table2",
        f"Table 2: computation and communication, {selection.group.origin.how}",
        "Table 2 (s)",
        caption,
        affected=Affected.SPLIT,
    )
    notes = [
        *_unmeasured(selection, Affected.SPLIT),
        *_note(selection, "waiting for ranks that were later, part of Comm", _waiting),
        *_note(selection, "other, in neither Compute nor Comm", _other),
        *_note(
            selection,
            "the rank that waits least differs between runs",
            lambda row: _changing_rank(row, selection.group),
        ),
        *_below(selection, Affected.SPLIT),
    ]
    names = ("compute_s", "comm_s")
    return strategy_table(selection, text, selection.parallel_setups, names, notes)


def _how_split(selection: StrategyRows) -> list[str]:
    """Return where the seconds of Table 2 come from, and what they contain."""
    origin = selection.group.origin
    traffic = selection.strategy.traffic
    if not origin.has_ranks:
        return [REPORTED]
    lines = [MEASURED, *_of_window(selection)]
    if origin.has_other:
        lines.append(WITH_OTHER)
    if traffic.under_torchrun:
        lines.append(HIDDEN_COST if traffic.overlaps_backward else PACKED)
    return lines


def _note(
    selection: StrategyRows, start: str, text_of: Callable[[Row], str | None]
) -> list[str]:
    """Return a note with the texts of the rows that have one; none without a text."""
    parts = []
    for row in selection.parallel_rows:
        if text := text_of(row):
            name = captions.row_at_batch(row, selection.group.device)
            parts.append(f"{name}: {text}")
    return [f"{start}: {'; '.join(parts)}"] if parts else []


def _waiting(row: Row) -> str | None:
    """Return how much of Comm is waiting for later ranks, if that is more than 5 % of the time."""
    waiting_s = row.figures.waiting_s
    comm_s = row.figures.comm_s
    if waiting_s is None or comm_s is None:
        return None
    if waiting_s <= IMBALANCE_LIMIT * (comm_s + (row.figures.compute_s or 0.0)):
        return None
    return f"{seconds(waiting_s)} of {seconds(comm_s)} s"


def _other(row: Row) -> str | None:
    """Return the time of a script that nothing accounts for, if that is more than 5 %."""
    other_s = row.figures.phase_other_s or 0.0
    compute_s = row.figures.compute_s or 0.0
    if other_s <= IMBALANCE_LIMIT * (other_s + compute_s + (row.figures.comm_s or 0.0)):
        return None
    return f"{seconds(other_s)} s"


def _changing_rank(row: Row, group: ConditionGroup) -> str | None:
    """Return in how many runs another rank than the shown one waits least, if in any."""
    records = group.counted_records(row, Affected.SPLIT)
    rank = least_waiting(record.ranks for record in records)
    others = sum(record.least_waiting != record.rank_of(rank) for record in records)
    if not others:
        return None
    return f"rank {rank} is shown, in {others} of {len(records)} runs it is another"


def table3(selection: StrategyRows) -> Table:
    """Return the measured bandwidth of the gradients in GB/s (1e9 bytes per second)."""
    words = BANDWIDTH[selection.strategy.traffic.bandwidth]
    bandwidths = [row.bandwidth for row in selection.parallel_rows if row.bandwidth]
    has_peak = any(bandwidth.of_peak for bandwidth in bandwidths)
    text = TableText(
        "table3",
        f"Table 3: {words.title}",
        f"Table 3 (GB/s{words.aside})",
        (
            words.measured,
            *([OF_PEAK] if has_peak else []),
            captions.runs(selection.parallel_rows),
        ),
        affected=Affected.BANDWIDTH,
    )
    notes = [
        *_unmeasured(selection, Affected.BANDWIDTH),
        *_small_peaks(selection),
        *_below(selection, Affected.BANDWIDTH),
    ]
    names = ["gb_per_s", "of_peak"] if has_peak else ["gb_per_s"]
    return strategy_table(selection, text, selection.parallel_setups, names, notes)


def _small_peaks(selection: StrategyRows) -> list[str]:
    """Return a note for each peak that is of messages smaller than those of the caption."""
    reasons = []
    for row in selection.parallel_rows:
        peak_bytes = row.figures.peak_bytes
        if peak_bytes and peak_bytes < PEAK_FROM_BYTES:
            size = count(round(peak_bytes))
            message = f"the largest message measured, {size} bytes (below 64 MiB)"
            reasons.append((f"the peak is of {message}", row.place))
    return captions.by_reason(reasons, selection.group.device)


def _unmeasured(selection: StrategyRows, affected: Affected) -> list[str]:
    """Return a line for each reason why a cell that has its time has no number in this table."""
    group = selection.group
    reasons = []
    for row in selection.parallel_rows:
        if row.timing and not row.has_number(affected):
            reasons.append(
                (f"not measured: {captions.why_unsplit(group, row)}", row.place)
            )
    return captions.by_reason(reasons, selection.group.device)


def _below(selection: StrategyRows, affected: Affected) -> list[str]:
    rows = selection.parallel_rows
    group = selection.group
    places = {place for place in selection.places if not place.setup.is_baseline}
    notes = absent(group, rows, places, captions.ROLES)
    return captions.explained(group, rows, affected) + notes


def strategy_tables(group: ConditionGroup) -> tuple[StrategyTables, ...]:
    """Return the tables of each strategy of a group."""
    parallel = {row.strategy for row in group.rows if not row.is_baseline}
    return tuple(
        _of_strategy(strategy_rows(group, strategy))
        for strategy in Strategy
        if strategy in parallel
    )


def _of_strategy(selection: StrategyRows) -> StrategyTables:
    group = selection.group
    tables = [table1(selection)]
    # with `baseline=smallest` Tables 2r and 3r may have nothing but dashes
    is_single = group.baseline is Baseline.SINGLE
    has_residual = is_single or any(row.residual for row in selection.rows)
    if selection.instrumented:
        tables.append(table2(selection))
    if has_residual:
        tables.append(table2r(selection))
    if selection.instrumented and group.origin.has_ranks:
        tables.append(table3(selection))
    if has_residual and group.work is None:  # the bytes of other work are not known
        tables.append(table3r(selection))
    return StrategyTables(
        strategy=selection.strategy,
        rows=selection.rows,
        tables=tuple(table for table in tables if table.lines),
        unmeasured=_unsplit(selection),
    )


def _unsplit(selection: StrategyRows) -> str:
    if selection.group.a_cell.script is None or selection.instrumented:
        return ""
    if records := selection.parallel_records:
        return (
            f"Tables 2 and 3 are not measured: {captions.why_unsplit_script(records)}."
        )
    ends = dict.fromkeys(
        result.reason
        for result in selection.group.cells
        if not result.measured
        if result.cell and result.cell.strategy is selection.strategy
    )
    reasons = "; ".join(ends) or "no cell with processes is measured"
    return f"Tables 2 and 3 have no row: {reasons}."


WITH_LOADING = "includes data loading: computed from epoch_s because train_s is unknown"

NOT_MEASURED = (
    "Tables 2 and 3 are not measured: protocol=lab ends before the instrumented epoch. Use "
    "protocol=full to measure them."
)


def table2r(selection: StrategyRows) -> Table:
    """Return seconds of computation and of communication, by the lab's residual method."""
    definition = RESIDUAL_LOADING if _loading(selection) == {True} else RESIDUAL
    per = captions.work_text(selection.group.work)
    text = TableText(
        "table2r",
        "Table 2r: computation and communication by subtraction",
        "Table 2r (s)",
        (definition.format(per=per), *_residual_caption(selection)),
    )
    setups = selection.parallel_setups
    notes = _residual_notes(selection)
    names = ("compute_residual_s", "comm_residual_s")
    return strategy_table(selection, text, setups, names, notes)


def table3r(selection: StrategyRows) -> Table:
    """Return bus bandwidth in GB/s (1e9 bytes per second), by the lab's residual method."""
    all_sizes = {row.timing.gradient_bytes for row in selection.rows if row.timing}
    sizes = sorted(size for size in all_sizes if size is not None)
    words = BANDWIDTH[selection.strategy.traffic.bandwidth]
    gradient_bytes = " or ".join(map(count, sizes)) or "an unknown number of"
    text = TableText(
        "table3r",
        "Table 3r: bandwidth by subtraction",
        f"Table 3r (GB/s{words.aside})",
        (
            *(line.format(gradient_bytes=gradient_bytes) for line in words.residual),
            *_residual_caption(selection),
        ),
    )
    notes = no_bandwidth(selection.rows, selection.group.device)
    notes += _residual_notes(selection)
    setups = selection.parallel_setups
    return strategy_table(selection, text, setups, ["bus_residual_gb_per_s"], notes)


def _residual_caption(selection: StrategyRows) -> tuple[str, ...]:
    rows = selection.rows
    baseline = references.baseline_train(selection.group, rows, selection.batches)
    beside = _unsplit(selection)
    if selection.group.origin.has_ranks and not (beside or selection.instrumented):
        beside = NOT_MEASURED
    return (f"{baseline} {captions.runs(rows)}", *filter(None, [beside]))


def _loading(selection: StrategyRows) -> set[bool]:
    """Return whether data loading is in the residuals: in all, in none, or in some."""
    return {row.residual.with_loading for row in selection.rows if row.residual}


def _residual_notes(selection: StrategyRows) -> list[str]:
    """Return notes on values that include data loading, then on missing values."""
    mixed = len(_loading(selection)) > 1
    loading = [
        (WITH_LOADING, row.place)
        for row in selection.parallel_rows
        if mixed and row.residual and row.residual.with_loading
    ]
    return [
        *captions.by_reason(loading, selection.group.device),
        *captions.explained(selection.group, selection.parallel_rows, Affected.TIME),
        *absent(selection.group, selection.rows, selection.places),
    ]


def no_bandwidth(rows: Iterable[Row], device: Device) -> list[str]:
    """Return lines on rows without a bandwidth: a residual of zero or less, or unknown sizes."""
    with_residual = [(row, row.residual) for row in rows if row.residual]
    timings = [row.timing for row, _ in with_residual if row.timing]
    missing = []
    if any(timing.gradient_bytes is None for timing in timings):
        missing.append("parameters")
    if any(timing.iterations is None for timing in timings):
        missing.append("images (or iterations)")
    why = "no bandwidth, since Comm of Table 2r is not above zero"
    below = [row for row, residual in with_residual if residual.comm_s <= 0]
    notes = captions.by_reason([(why, row.place) for row in below], device)
    if not missing:
        return notes
    without = f"no bandwidth without the number of {' and '.join(missing)}"
    return [f"{without}, which the import does not give", *notes]
