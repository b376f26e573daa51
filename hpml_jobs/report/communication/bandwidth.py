"""Full table of bandwidths: bytes and GB/s of the gradients, and their share of the possible."""

from typing import Annotated, NamedTuple

from hpml_jobs.checks.result import Affected
from hpml_jobs.core.strategies import BandwidthKind
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.builder import (
    UNMEASURED,
    Number,
    Shown,
    TableText,
    columns_of,
    filled,
    left_out,
    line_table,
    rest,
)
from hpml_jobs.report.frame.figures import PEAK_FROM_BYTES
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import count, gb_per_s, percent, rounded
from hpml_jobs.report.frame.rows import Row
from hpml_jobs.report.frame.table import Table

BANDWIDTH = (
    "Gradients only. Bytes: of one rank in the epoch, counted at each collective, and expected of "
    "the strategy (dp: unknown). GB/s (1e9 bytes): algbw = bytes / time; busbw = "
    "2(N-1)/N x algbw; both on the rank with the least time, whose messages wait least for other "
    "ranks. % of peak: busbw / best busbw of the microbenchmark from 64 MiB. % of sizes: time of "
    "the same messages on idle devices / time here, on the same rank. % of link: busbw / specified"
    " speed of the link. Delayed: trials of the microbenchmark that waited for the scheduler."
)


class BandwidthLine(NamedTuple):
    """Bytes and bandwidths of a row's gradients, 1e9 bytes/s; shares of 1."""

    sent_bytes: Annotated[Number, Shown("counted", rounded, "gradient bytes of a rank")]
    expected_bytes: Annotated[Number, Shown("expected", rounded, "gradient bytes of a rank")]
    algorithm_gb_per_s: Annotated[Number, Shown("algbw", gb_per_s, "GB/s")]
    bus_gb_per_s: Annotated[Number, Shown("busbw", gb_per_s, "GB/s")]
    nominal_gb_per_s: Annotated[Number, Shown("nominal", gb_per_s, "GB/s")]
    root_wire_gb_per_s: Annotated[Number, Shown("root's wire", gb_per_s, "GB/s")]
    bus_plain_gb_per_s: Number
    of_peak: Annotated[Number, Shown("peak", percent, "% of")]
    of_same_sizes: Annotated[Number, Shown("sizes", percent, "% of")]
    of_link: Annotated[Number, Shown("link", percent, "% of")]
    delayed: Annotated[Number, Shown("delayed, %", percent)]


OF_KIND = {
    "nominal_gb_per_s": BandwidthKind.NOMINAL,
    "root_wire_gb_per_s": BandwidthKind.ROOT_WIRE,
}
"""Columns that are there only if a strategy has such a bandwidth."""


def bandwidth(group: ConditionGroup) -> Table | None:
    """Return bytes and bandwidths of the gradients, and the share of what is possible."""
    rows = [row for row in group.timed if row.bandwidth]
    if not rows:
        return None
    text = TableText(
        "bandwidth",
        "Bandwidth",
        "instrumented epoch",
        (BANDWIDTH, captions.runs(rows)),
        on_screen=False,
        affected=Affected.BANDWIDTH,
    )
    kinds = {row.strategy.traffic.bandwidth for row in rows}
    absent = [name for name, kind in OF_KIND.items() if kind not in kinds]
    heads = columns_of(BandwidthLine, without=absent)
    lines = [(row, filled(BandwidthLine, row.bandwidth)) for row in rows]
    missing = rest((row for row in group.rows if row.gpus > 1), rows)
    notes = _limits(group, rows) + left_out(group, UNMEASURED, missing)
    return line_table(group, text, lines, heads, notes)


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
