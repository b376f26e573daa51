"""Tables 2r and 3r: the lab's residual estimate, derived from epoch times."""

from collections.abc import Iterable

from hpml_jobs.checks.result import Affected
from hpml_jobs.core.strategies import Device
from hpml_jobs.report.frame import captions, references
from hpml_jobs.report.frame.numbers import DASH, count, gb_per_s, seconds
from hpml_jobs.report.frame.rows import Row
from hpml_jobs.report.frame.table import Table
from hpml_jobs.report.lab.selection import (
    StrategyRows,
    absent,
    blocks,
    dash_or_oom,
    lines,
    text_or_dash,
)
from hpml_jobs.report.lab.words import BANDWIDTH, RESIDUAL, RESIDUAL_LOADING

WITH_LOADING = "includes data loading: computed from epoch_s because train_s is unknown"

NOT_MEASURED = (
    "Tables 2 and 3 are not measured: protocol=lab ends before the instrumented epoch. Use "
    "protocol=full to measure them."
)


def table2r(selection: StrategyRows) -> Table:
    """Return seconds of computation and of communication, by the lab's residual method."""
    return Table(
        label=f"table2r-{selection.strategy.value}",
        title="Table 2r: computation and communication by the lab residual, "
        f"{selection.strategy.value}",
        corner="Table 2r (s)",
        blocks=blocks(selection, "Compute", "Comm"),
        lines=lines(selection, selection.parallel_setups, _compute_and_comm, Affected.TIME),
        caption=(
            _definition(selection),
            *_caption(selection),
        ),
        setting=captions.setting(selection.group),
        notes=tuple(_below(selection)),
    )


def _definition(selection: StrategyRows) -> str:
    work = selection.group.work
    text = RESIDUAL_LOADING if _loading(selection) == {True} else RESIDUAL
    return text.format(per=captions.work_text(work), time=captions.time_name(work))


def _compute_and_comm(row: Row) -> tuple[str, ...]:
    if row.residual is None:
        return dash_or_oom(row), DASH
    return seconds(row.residual.compute_s), seconds(row.residual.comm_s)


def table3r(selection: StrategyRows) -> Table:
    """Return bus bandwidth in GB/s (1e9 bytes per second), by the lab's residual method."""
    all_sizes = {row.timing.gradient_bytes for row in selection.rows if row.timing}
    sizes = sorted(size for size in all_sizes if size is not None)
    words = BANDWIDTH[selection.strategy.traffic.bandwidth]
    gradient_bytes = " or ".join(map(count, sizes)) or "an unknown number of"
    return Table(
        label=f"table3r-{selection.strategy.value}",
        title=f"Table 3r: bandwidth by the lab residual, {selection.strategy.value}",
        corner=f"Table 3r (GB/s{words.aside})",
        blocks=blocks(selection),
        lines=lines(selection, selection.parallel_setups, _bandwidth, Affected.TIME),
        caption=(
            *(line.format(gradient_bytes=gradient_bytes) for line in words.residual),
            *_caption(selection),
        ),
        setting=captions.setting(selection.group),
        notes=(*no_bandwidth(selection.rows, selection.group.device), *_below(selection)),
    )


def _bandwidth(row: Row) -> tuple[str, ...]:
    if row.residual is None:
        return (dash_or_oom(row),)
    return (text_or_dash(row.residual.bus_gb_per_s, gb_per_s),)


def _caption(selection: StrategyRows) -> tuple[str, ...]:
    device, rows = selection.group.device, selection.rows
    baseline = references.baseline_train(rows, selection.batches, device)
    beside = () if selection.instrumented or selection.group.imported else (NOT_MEASURED,)
    return (f"{baseline} {captions.runs(rows)}", *beside)


def _loading(selection: StrategyRows) -> set[bool]:
    """Return whether data loading is in the residuals: in all, in none, or in some."""
    return {row.residual.with_loading for row in selection.rows if row.residual}


def _below(selection: StrategyRows) -> list[str]:
    """Return notes on values that include data loading, then on missing values."""
    mixed = len(_loading(selection)) > 1
    loading = [
        (WITH_LOADING, row.place)
        for row in selection.parallel_rows
        if mixed and row.residual and row.residual.with_loading
    ]
    loading_notes = captions.by_reason(
        loading, lambda setup: captions.row_label(setup, selection.group.device)
    )
    return [
        *loading_notes,
        *captions.explained(selection.group, selection.parallel_rows, Affected.TIME),
        *absent(selection.group, selection.rows, selection.places),
    ]


def no_bandwidth(rows: Iterable[Row], device: Device) -> list[str]:
    """Return lines on rows without a bandwidth: a residual of zero or less, or unknown sizes."""
    rows = list(rows)
    timings = [row.timing for row in rows if row.residual is not None and row.timing is not None]
    missing = {
        "parameters": any(timing.gradient_bytes is None for timing in timings),
        "images (or iterations)": any(timing.iterations is None for timing in timings),
    }
    names = " and ".join(name for name, is_missing in missing.items() if is_missing)
    unknown = [f"no bandwidth without the number of {names}, which the import does not give"]
    not_positive = captions.by_reason(
        (
            ("no bandwidth, since the residual is not above zero", row.place)
            for row in rows
            if row.residual is not None and row.residual.comm_s <= 0
        ),
        lambda setup: captions.row_label(setup, device),
    )
    return [*(unknown if names else ()), *not_positive]
