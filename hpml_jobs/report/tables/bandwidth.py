"""Full table of bandwidths: bytes and GB/s of the gradients, and their share of the possible."""

from collections.abc import Callable

from hpml_jobs.core.strategies import BandwidthKind
from hpml_jobs.report.merge.bandwidth import Bandwidth
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.rows import Row
from hpml_jobs.report.merge.run_values import PEAK_FROM_BYTES
from hpml_jobs.report.table import Table
from hpml_jobs.report.tables.builder import (
    UNMEASURED,
    About,
    Column,
    Columns,
    left_out,
    places,
    rest,
    table,
)
from hpml_jobs.report.text import captions
from hpml_jobs.report.text.numbers import count, gb_per_s, percent

BANDWIDTH = (
    "Gradients only, E2. Bytes: of one rank in the epoch, counted at each collective, and what the "
    "strategy must send (dp: not known beforehand). GB/s, 1 GB = 1e9 bytes: algbw = bytes / time; "
    "busbw = 2(N-1)/N x algbw; both by the rank with the least time; plain: busbw by the rank with "
    "the longest epoch. busbw as % of peak: the microbenchmark's best from 64 MiB up; % of sizes: "
    "time of the very same messages on idle devices / time here; % of link: its specified speed."
)


def bandwidth(group: ConditionGroup) -> Table | None:
    """Bytes and bandwidths of the gradients, and what they reach of what is possible."""
    own = [row for row in group.timed if row.bandwidth]
    if not own:
        return None
    kinds = {row.strategy.traffic.bandwidth for row in own}
    nominal = _speed("nominal", "nominal", "nominal_gb_per_s")
    wire = _speed("root_wire", "root's wire", "root_wire_gb_per_s")
    heads: tuple[Columns[Row], ...] = (
        Columns(
            "gradient bytes of a rank",
            (
                Column("sent_bytes", "counted", of_speed("sent_bytes"), _bytes),
                Column("expected_bytes", "expected", of_speed("expected_bytes"), _bytes),
            ),
        ),
        Columns(
            "GB/s",
            (
                _speed("algorithm", "algbw", "algorithm_gb_per_s"),
                _speed("bus", "busbw", "bus_gb_per_s"),
                _speed("bus_plain", "plain", "bus_plain_gb_per_s"),
                *((nominal,) if BandwidthKind.NOMINAL in kinds else ()),
                *((wire,) if BandwidthKind.ROOT_WIRE in kinds else ()),
            ),
        ),
        Columns(
            "% of",
            (
                Column("of_peak", "peak", of_speed("of_peak"), percent),
                Column("of_same_sizes", "sizes", of_speed("of_same_sizes"), percent),
                Column("of_link", "link", of_speed("of_link"), percent),
            ),
        ),
    )
    about = About("bandwidth", "Bandwidth", "E2", (BANDWIDTH, captions.runs(own)), on_screen=False)
    lost = rest((row for row in group.rows if row.gpus > 1), own)
    said = _limits(group, own) + left_out(group, UNMEASURED, lost)
    return table(group, about, places(group, own, heads), said)


def _limits(group: ConditionGroup, own: list[Row]) -> list[str]:
    """What the percentages are of, where it is not what the caption says."""
    said = []
    small = [e for e in own if e.values and 0 < (e.values.peak_bytes or 0) < PEAK_FROM_BYTES]
    for size in sorted({_peak_bytes(row) for row in small}):
        these = [row for row in small if _peak_bytes(row) == size]
        why = f"peak of the largest message there was, {count(size)} bytes, below 64 MiB"
        said += left_out(group, why, these)
    if own and not any(row.values and row.values.link_gb_per_s for row in own):
        said.append("link: its specified speed is not in the cluster's config")
    return said


def _peak_bytes(row: Row) -> int:
    return round((row.values and row.values.peak_bytes) or 0)


def of_speed(name: str) -> Callable[[Row], float | None]:
    """A bandwidth of an entry by its name."""
    assert name in Bandwidth.__struct_fields__  # noqa: S101 - as above
    return lambda row: getattr(row.bandwidth, name) if row.bandwidth else None


def _speed(name: str, head: str, field: str) -> Column[Row]:
    return Column(f"{name}_gb_per_s", head, of_speed(field), gb_per_s)


def _bytes(value: float) -> str:
    return count(round(value))
