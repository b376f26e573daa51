"""Full table of bandwidths: bytes and GB/s of the gradients, and their share of the possible."""

from collections.abc import Callable, Collection

from hpml_jobs.checks.result import Affected
from hpml_jobs.core.strategies import BandwidthKind
from hpml_jobs.report.merge.bandwidth import Bandwidth
from hpml_jobs.report.merge.figures import PEAK_FROM_BYTES
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.rows import Row
from hpml_jobs.report.table import Table
from hpml_jobs.report.tables.builder import (
    UNMEASURED,
    Column,
    Columns,
    TableText,
    column,
    left_out,
    rest,
    row_table,
)
from hpml_jobs.report.text import captions
from hpml_jobs.report.text.numbers import count, gb_per_s, percent

BANDWIDTH = (
    "Gradients only, E2. Bytes: of one rank in the epoch, counted at each collective, and "
    "expected of the strategy (dp: unknown). GB/s (1e9 bytes): algbw = bytes / time; busbw = "
    "2(N-1)/N x algbw; both on the rank with the least time, whose messages wait least for other "
    "ranks. % of peak: busbw / best busbw of the microbenchmark from 64 MiB. % of sizes: time of "
    "the same messages on idle devices / time here, on the same rank. % of link: busbw / specified"
    " speed of the link. Delayed: trials of the microbenchmark that waited for the scheduler."
)


def bandwidth(group: ConditionGroup) -> Table | None:
    """Return bytes and bandwidths of the gradients, and the share of what is possible."""
    rows = [row for row in group.timed if row.bandwidth]
    if not rows:
        return None
    text = TableText(
        "bandwidth",
        "Bandwidth",
        "E2",
        (BANDWIDTH, captions.runs(rows)),
        on_screen=False,
        affected=Affected.BANDWIDTH,
    )
    heads = (
        Columns(
            "gradient bytes of a rank",
            (
                _column("sent_bytes", "counted", lambda speeds: speeds.sent_bytes, _bytes),
                _column("expected_bytes", "expected", lambda speeds: speeds.expected_bytes, _bytes),
            ),
        ),
        Columns("GB/s", _speeds({row.strategy.traffic.bandwidth for row in rows})),
        Columns("", (_column("bus_plain_gb_per_s", "", lambda speeds: speeds.bus_plain_gb_per_s),)),
        Columns(
            "% of",
            (
                _column("of_peak", "peak", lambda speeds: speeds.of_peak, percent),
                _column("of_same_sizes", "sizes", lambda speeds: speeds.of_same_sizes, percent),
                _column("of_link", "link", lambda speeds: speeds.of_link, percent),
            ),
        ),
        Columns("delayed, %", (_column("delayed", "", lambda speeds: speeds.delayed, percent),)),
    )
    missing = rest((row for row in group.rows if row.gpus > 1), rows)
    notes = _limits(group, rows) + left_out(group, UNMEASURED, missing)
    return row_table(group, text, rows, heads, notes)


def _column(
    name: str,
    head: str,
    value: Callable[[Bandwidth], float | None],
    text: Callable[[float], str] = gb_per_s,
) -> Column[Row]:
    return column(name, head, lambda row: value(row.bandwidth) if row.bandwidth else None, text)


def _speeds(kinds: Collection[BandwidthKind]) -> tuple[Column[Row], ...]:
    """Return the columns of GB/s; two of them only if a strategy has such a bandwidth."""
    columns = [
        _column("algorithm_gb_per_s", "algbw", lambda speeds: speeds.algorithm_gb_per_s),
        _column("bus_gb_per_s", "busbw", lambda speeds: speeds.bus_gb_per_s),
    ]
    if BandwidthKind.NOMINAL in kinds:
        columns.append(
            _column("nominal_gb_per_s", "nominal", lambda speeds: speeds.nominal_gb_per_s)
        )
    if BandwidthKind.ROOT_WIRE in kinds:
        columns.append(
            _column("root_wire_gb_per_s", "root's wire", lambda speeds: speeds.root_wire_gb_per_s)
        )
    return tuple(columns)


def _limits(group: ConditionGroup, rows: list[Row]) -> list[str]:
    """Return notes on percentages whose reference differs from the caption's."""
    notes = []
    small = [row for row in rows if 0 < (row.figures.peak_bytes or 0) < PEAK_FROM_BYTES]
    for size in sorted({_peak_bytes(row) for row in small}):
        rows_of_size = [row for row in small if _peak_bytes(row) == size]
        why = f"the peak is of the largest message measured, {count(size)} bytes (below 64 MiB)"
        notes += left_out(group, why, rows_of_size)
    if rows and not any(row.figures.link_gb_per_s for row in rows):
        notes.append("link: neither NVML nor cluster.link_gb_per_s says its speed")
    return notes


def _peak_bytes(row: Row) -> int:
    return round(row.figures.peak_bytes or 0)


def _bytes(value: float) -> str:
    return count(round(value))
