"""The lab's tables: Q1, and Tables 1, 2 and 3 of a strategy, measured and by residual (2r, 3r)."""

from collections.abc import Iterable

from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.core.value import Value, known
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.numbers import (
    DASH,
    aside,
    count,
    seconds,
    span,
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
    MEASURED,
    OF_PEAK,
    PACKED,
    Q1,
    REPORTED,
    RESIDUAL,
    TIME,
    WITH_OTHER,
)
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row


class StrategyTables(Value, frozen=True, kw_only=True):
    """Tables 1, 2 and 3 of one strategy, measured and by residual, and the rows in them."""

    strategy: Strategy
    rows: tuple[Row, ...]
    tables: tuple[Table, ...]


def q1(group: ConditionGroup) -> Table:
    """Return the time of one epoch on one GPU for each batch."""
    baselines = [row for row in group.rows if row.is_baseline]
    places = {row.place for row in baselines}
    unit = captions.unit(group.device)
    what = captions.work_text(group.work)
    return Table(
        label="q1",
        title=f"Q1: time per {what} on 1 {unit}",
        corner="batch",
        columns=tuple(map(Column, ("Training(s)", "Time(s)", "iterations"))),
        lines=tuple(
            Line(
                f"{row.batch_per_gpu}{aside(row.path)}",
                _q1(row, is_doubtful=Affected.TIME in row.doubts),
            )
            for row in baselines
        ),
        caption=(
            Q1.format(unit=unit, what=what),
            captions.runs(baselines),
            _loader_workers(baselines),
        ),
        setting=captions.setting(group),
        notes=(
            *captions.explained(baselines, Affected.TIME),
            *absent(group, baselines, places),
        ),
    )


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
    reference = captions.reference_text(rows, group.device)
    caption = (
        TIME.format(what=captions.work_text(group.work), reference=reference),
        captions.runs(rows),
        _loader_workers(rows),
    )
    per = f" (per {captions.work_text(group.work)})" * bool(group.work)
    text = TableText("table1", "Table 1: time and speedup", f"Table 1{per}", caption)
    notes = [
        *captions.explained(rows, Affected.TIME),
        *absent(group, rows, selection.places),
    ]
    names = ("time_s", "speedup_and_range")
    plain = [setup for setup in selection.setups if setup.is_plain]
    return strategy_table(selection, text, plain or selection.setups, names, notes)


def _loader_workers(rows: Iterable[Row]) -> str:
    """Return the DataLoader workers of all processes together."""
    totals = {row.timing.loader_workers_total for row in rows if row.timing} - {None}
    return f"DataLoader workers in total: {span(totals) if totals else 'unknown'}."


def table2(selection: StrategyRows) -> Table:
    """Return the measured seconds of computation and of communication."""
    group = selection.group
    derived = [
        f"{captions.cell_words(row.place, group.device)}: {seconds(row.residual.comm_s)}"
        for row in selection.parallel_rows
        if row.residual
    ]
    caption = _how_split(selection)
    if derived:
        caption.append(
            f"Comm by subtraction (training time - training time of 1 {captions.unit(group.device)}"
            f" / N) also counts slower computing: {'; '.join(derived)}."
        )
    caption.append(captions.runs(selection.parallel_rows))
    text = TableText(
        "table2",
        "Table 2: computation and communication",
        "Table 2 (s)",
        tuple(caption),
    )
    unsplit = [row for row in selection.parallel_rows if row.figures.compute_s is None]
    notes = [
        *_unmeasured(selection, unsplit),
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
    lines = [MEASURED]
    if origin.has_other:
        lines.append(WITH_OTHER)
    if traffic.under_torchrun and not traffic.overlaps_backward:
        lines.append(PACKED)
    return lines


def table3(selection: StrategyRows) -> Table:
    """Return the measured bandwidth of the gradients in GB/s (1e9 bytes per second)."""
    words = BANDWIDTH[selection.strategy.traffic.bandwidth]
    peaks = [
        row.figures.peak_bytes or 0
        for row in selection.parallel_rows
        if row.bandwidth and row.bandwidth.of_peak
    ]
    text = TableText(
        "table3",
        f"Table 3: {words.title}",
        f"Table 3 (GB/s{words.aside})",
        (
            words.measured,
            *([OF_PEAK.format(max(peaks) / 1e6)] if peaks else []),
            captions.runs(selection.parallel_rows),
        ),
    )
    without = [
        row
        for row in selection.parallel_rows
        if row.bandwidth is None or row.bandwidth.lab_gb_per_s is None
    ]
    notes = [
        *_unmeasured(selection, without),
        *_below(selection, Affected.BANDWIDTH),
    ]
    names = ["gb_per_s", "of_peak"] if peaks else ["gb_per_s"]
    return strategy_table(selection, text, selection.parallel_setups, names, notes)


def _unmeasured(selection: StrategyRows, rows: Iterable[Row]) -> list[str]:
    """Return a line for each reason why cells that have their time have no number in a table."""
    reasons = [
        (f"not measured: {captions.why_unsplit(row)}", row.place)
        for row in rows
        if row.timing
    ]
    return captions.by_reason(reasons, selection.group.device)


def _below(selection: StrategyRows, affected: Affected) -> list[str]:
    rows = selection.parallel_rows
    group = selection.group
    places = {place for place in selection.places if not place.setup.is_baseline}
    notes = absent(group, rows, places, captions.OF_SPLIT)
    return captions.explained(rows, affected) + notes


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
    has_residual = any(row.residual for row in selection.rows)
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
    )


def table2r(selection: StrategyRows) -> Table:
    """Return seconds of computation and of communication, by the lab's residual method."""
    per = captions.work_text(selection.group.work)
    text = TableText(
        "table2r",
        "Table 2r: computation and communication by subtraction",
        "Table 2r (s)",
        (RESIDUAL.format(per=per), *_residual_caption(selection)),
    )
    setups = selection.parallel_setups
    notes = _residual_notes(selection)
    names = ("compute_residual_s", "comm_residual_s")
    return strategy_table(selection, text, setups, names, notes)


def table3r(selection: StrategyRows) -> Table:
    """Return bus bandwidth in GB/s (1e9 bytes per second), by the lab's residual method."""
    sizes = {row.timing.gradient_bytes for row in selection.rows if row.timing}
    words = BANDWIDTH[selection.strategy.traffic.bandwidth]
    gradient_bytes = (
        " or ".join(map(count, sorted(known(sizes)))) or "an unknown number of"
    )
    text = TableText(
        "table3r",
        "Table 3r: bandwidth by subtraction",
        f"Table 3r (GB/s{words.aside})",
        (
            *(line.format(gradient_bytes=gradient_bytes) for line in words.residual),
            *_residual_caption(selection),
        ),
    )
    notes = _residual_notes(selection)
    setups = selection.parallel_setups
    return strategy_table(selection, text, setups, ["bus_residual_gb_per_s"], notes)


def _residual_caption(selection: StrategyRows) -> tuple[str, ...]:
    return captions.runs(selection.rows), *filter(None, [_unsplit(selection)])


def _unsplit(selection: StrategyRows) -> str:
    """Return why Tables 2 and 3 are not measured; empty if they are, or nothing is."""
    rows = [row for row in selection.parallel_rows if row.timing]
    if selection.instrumented or not rows:
        return ""
    why = captions.why_unsplit(rows[0])
    return f"Tables 2 and 3 are not measured: {why}."


def _residual_notes(selection: StrategyRows) -> list[str]:
    return [
        *captions.explained(selection.rows, Affected.TIME),
        *absent(selection.group, selection.rows, selection.places),
    ]
