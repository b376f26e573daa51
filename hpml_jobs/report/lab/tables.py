"""The lab's tables: Q1, and Tables 1, 2 and 3 of a strategy as measured."""

from collections.abc import Callable, Iterable

from hpml_jobs.checks.result import Affected
from hpml_jobs.checks.waiting import IMBALANCE_LIMIT
from hpml_jobs.core.record import least_waiting
from hpml_jobs.core.strategies import Baseline, Strategy
from hpml_jobs.core.value import Value
from hpml_jobs.report.frame import captions, references
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import DASH, count, gb_per_s, ratio, seconds
from hpml_jobs.report.frame.rows import Row
from hpml_jobs.report.frame.table import Block, Line, Table
from hpml_jobs.report.lab.residual import table2r, table3r
from hpml_jobs.report.lab.selection import (
    StrategyRows,
    absent,
    blocks,
    dash_or_oom,
    lines,
    strategy_rows,
    text_or_dash,
)
from hpml_jobs.report.lab.words import (
    BANDWIDTH,
    HIDDEN_COST,
    MEASURED,
    PACKED,
    Q1,
    REPORTED,
    kernels_of_one_run,
    loader_workers,
    time,
)


class StrategyTables(Value, frozen=True, kw_only=True):
    """Tables 1, 2 and 3 of one strategy, measured and by residual, and the rows in them."""

    strategy: Strategy
    rows: tuple[Row, ...]
    tables: tuple[Table, ...]


def q1(group: ConditionGroup) -> Table:
    """Return the time of one epoch on one GPU for each batch."""
    baselines = [row for row in group.rows if row.is_baseline]
    places = {row.place for row in baselines}
    unit, what = captions.unit(group.device), captions.one_work(group.work)
    time = captions.time_name(group.work)
    return Table(
        label="q1",
        title=f"Q1: {what} on 1 {unit}",
        corner="batch",
        blocks=tuple(Block(head=head) for head in ("train_s", time, "iterations")),
        lines=tuple(
            Line(
                label=f"{row.batch_per_gpu} ({row.path})" if row.path else str(row.batch_per_gpu),
                texts=captions.marked(group, row, _q1(row), Affected.TIME),
            )
            for row in baselines
        ),
        caption=(
            Q1.format(unit=unit, what=what, time=time),
            f"{captions.runs(baselines)} {loader_workers(baselines, group.device)}",
        ),
        setting=captions.setting(group),
        notes=(
            *captions.explained(group, baselines, Affected.TIME),
            *captions.without_train(group, baselines),
            *_without_iterations(group, baselines),
            *absent(group, baselines, places),
        ),
    )


def _without_iterations(group: ConditionGroup, rows: Iterable[Row]) -> list[str]:
    unknown = any(row.timing and row.timing.iterations is None for row in rows)
    name = group.a_cell.workload.samples_name
    return [f"Iterations: the number of {name} is not reported."] if unknown else []


def _q1(row: Row) -> tuple[str, ...]:
    timing = row.timing
    if timing is None:
        return dash_or_oom(row), DASH, DASH
    iterations = DASH if timing.iterations is None else count(timing.iterations)
    return text_or_dash(timing.train_s, seconds), seconds(timing.epoch_s), iterations


def table1(selection: StrategyRows) -> Table:
    """Return the table of time and speedup."""
    device, rows = selection.group.device, selection.rows
    return Table(
        label=f"table1-{selection.strategy.value}",
        title=f"Table 1: time and speedup, {selection.strategy.value}",
        corner="Table 1",
        blocks=blocks(selection, "Time(s)", "Speedup"),
        lines=lines(
            selection,
            selection.setups,
            lambda row: _time_and_speedup(selection.group, row),
            Affected.TIME,
        ),
        caption=(
            f"{time(selection.group)} Speedup: Time of "
            f"{references.size_text(rows, device)} / Time.",
            f"{references.baseline(rows, selection.batches, device)} {captions.runs(rows)}",
            loader_workers(rows, device),
            *kernels_of_one_run(selection.group, rows),
        ),
        setting=captions.setting(selection.group),
        notes=(
            *captions.explained(selection.group, rows, Affected.TIME),
            *absent(selection.group, rows, selection.places),
            *_elsewhere(selection),
        ),
    )


SAME_GLOBAL_BATCH = "speedups at the same global batch are in the table Strong scaling"


def _elsewhere(selection: StrategyRows) -> list[str]:
    """Return where the speedups are of a strategy that has them at the same global batch only."""
    in_strong = {pair.parallel.place for pair in references.pairs(selection.group)}
    parallel = [row for row in selection.parallel_rows if row.timing]
    if any(row.speedup is not None for row in parallel):
        return []
    return [SAME_GLOBAL_BATCH] if any(row.place in in_strong for row in parallel) else []


def _time_and_speedup(group: ConditionGroup, row: Row) -> tuple[str, ...]:
    time = seconds(row.timing.epoch_s) if row.timing else dash_or_oom(row)
    if row.reference == row.setup:
        return time, "1"
    speedup = text_or_dash(row.speedup, ratio)
    return time, captions.mark(speedup, is_doubtful=group.doubts_ratio(row))


def table2(selection: StrategyRows) -> Table:
    """Return the measured seconds of computation and of communication."""
    how = "as reported elsewhere" if selection.group.imported else "measured"
    return Table(
        label=f"table2-{selection.strategy.value}",
        title=f"Table 2: computation and exposed communication, {how}, {selection.strategy.value}",
        corner="Table 2 (s)",
        blocks=blocks(selection, "Compute", "Comm"),
        lines=lines(selection, selection.parallel_setups, _compute_and_comm, Affected.SPLIT),
        caption=(
            REPORTED if selection.group.imported else MEASURED,
            *_where_packing_counts(selection),
            captions.runs(selection.parallel_rows),
        ),
        setting=captions.setting(selection.group),
        notes=(
            *_unmeasured(selection, _has_compute),
            *_waiting(selection),
            *_changing_ranks(selection),
            *_below(selection, Affected.SPLIT),
        ),
    )


def _waiting(selection: StrategyRows) -> list[str]:
    """Return a note on the rows where more than 5 % of the time is waiting for later ranks."""
    texts = []
    for row in selection.parallel_rows:
        waiting_s, comm_s = row.figures.waiting_s, row.figures.comm_s
        if waiting_s is None or comm_s is None:
            continue
        if waiting_s > IMBALANCE_LIMIT * (comm_s + (row.figures.compute_s or 0.0)):
            label = captions.row_label(row.setup, selection.group.device)
            texts.append(
                f"{label} at batch {row.batch_per_gpu}: {seconds(waiting_s)} of {seconds(comm_s)} s"
            )
    return [f"waiting for ranks that were later, part of Comm: {'; '.join(texts)}"] if texts else []


def _changing_ranks(selection: StrategyRows) -> list[str]:
    """Return a note on rows in some of whose runs another rank than the shown one waits least."""
    texts = []
    for row in selection.parallel_rows:
        records = selection.group.counted_records(row, Affected.SPLIT)
        shown = least_waiting(records)
        others = sum(record.least_waiting != record.rank_of(shown) for record in records)
        if others:
            label = captions.row_label(row.setup, selection.group.device)
            texts.append(
                f"{label} at batch {row.batch_per_gpu}: rank {shown} is shown, another one waits "
                f"least in {others} of {len(records)}"
            )
    return [f"runs whose late ranks differ: {'; '.join(texts)}"] if texts else []


def _where_packing_counts(selection: StrategyRows) -> tuple[str, ...]:
    """Return where Table 2 has the work that exists only for the exchange of gradients."""
    traffic = selection.strategy.traffic
    if selection.group.imported or not traffic.under_torchrun:
        return ()
    return (HIDDEN_COST if traffic.overlaps_backward else PACKED,)


def _compute_and_comm(row: Row) -> tuple[str, ...]:
    if row.values is None:
        return dash_or_oom(row), DASH
    return text_or_dash(row.values.compute_s, seconds), text_or_dash(row.values.comm_s, seconds)


def table3(selection: StrategyRows) -> Table:
    """Return the measured bandwidth of the gradients in GB/s (1e9 bytes per second)."""
    words = BANDWIDTH[selection.strategy.traffic.bandwidth]
    return Table(
        label=f"table3-{selection.strategy.value}",
        title=f"Table 3: {words.title}, {selection.strategy.value}",
        corner=f"Table 3 (GB/s{words.aside})",
        blocks=blocks(selection),
        lines=lines(selection, selection.parallel_setups, _bandwidth, Affected.BANDWIDTH),
        caption=(words.measured, captions.runs(selection.parallel_rows)),
        setting=captions.setting(selection.group),
        notes=(
            *_unmeasured(selection, _has_bandwidth),
            *_below(selection, Affected.BANDWIDTH),
        ),
    )


def _bandwidth(row: Row) -> tuple[str, ...]:
    if row.timing is None:
        return (dash_or_oom(row),)
    return (text_or_dash(row.bandwidth.lab_gb_per_s if row.bandwidth else None, gb_per_s),)


def _has_compute(row: Row) -> bool:
    return row.values is not None and row.values.compute_s is not None


def _has_bandwidth(row: Row) -> bool:
    return row.bandwidth is not None and row.bandwidth.lab_gb_per_s is not None


def _unmeasured(selection: StrategyRows, is_measured: Callable[[Row], bool]) -> list[str]:
    """Return a line for each reason why a cell that has its time has no number in this table."""
    return captions.by_reason(
        (
            (_why_unmeasured(selection, row), row.place)
            for row in selection.parallel_rows
            if row.timing and not is_measured(row)
        ),
        lambda setup: captions.row_label(setup, selection.group.device),
    )


def _why_unmeasured(selection: StrategyRows, row: Row) -> str:
    records = selection.group.records(row)
    files = sorted({record.imported.file for record in records if record.imported})
    if files:
        return f"{', '.join(files)} does not report it"
    if all(record.least_waiting is None for record in records):
        return "not measured: protocol=lab ends before the instrumented epoch"
    return "not measured: no collective of gradients was recorded"


def _below(selection: StrategyRows, affected: Affected) -> list[str]:
    rows, group = selection.parallel_rows, selection.group
    places = {place for place in selection.places if not place.setup.is_baseline}
    return captions.explained(group, rows, affected) + absent(group, rows, places)


def strategy_tables(group: ConditionGroup) -> tuple[StrategyTables, ...]:
    """Return the tables of each strategy of a group."""
    parallel = {row.strategy for row in group.rows if not row.is_baseline}
    return tuple(
        _of_strategy(strategy_rows(group, strategy))
        for strategy in Strategy
        if strategy in parallel
    )


def _of_strategy(selection: StrategyRows) -> StrategyTables:
    tables = [table1(selection)]
    if selection.instrumented:
        tables.append(table2(selection))
    # with `baseline=smallest` Tables 2r and 3r may have nothing but dashes
    is_single = selection.group.baseline is Baseline.SINGLE
    has_residual = is_single or any(row.residual for row in selection.rows)
    if has_residual:
        tables.append(table2r(selection))
    if selection.instrumented and not selection.group.imported:
        tables.append(table3(selection))
    if has_residual and selection.group.work is None:  # the bytes of other work are not known
        tables.append(table3r(selection))
    return StrategyTables(
        strategy=selection.strategy,
        rows=selection.rows,
        tables=tuple(table for table in tables if table.lines),
    )
