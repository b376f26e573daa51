"""The profiler's results, an independent check of the instruments: table and picture."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Annotated, NamedTuple, Self

from hpml_jobs.checks.profiling import LAUNCH_MS, PROFILER_LIMIT
from hpml_jobs.checks.result import Affected
from hpml_jobs.core.measurements import ProfilerSummary
from hpml_jobs.core.text import percent_text
from hpml_jobs.report.frame import captions, style
from hpml_jobs.report.frame.builder import (
    Number,
    Shown,
    TableText,
    columns_of,
    filled,
    left_out,
    line_table,
    rest,
)
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import percent, seconds
from hpml_jobs.report.frame.picture import Axes, Picture, named, rows, stack
from hpml_jobs.report.frame.rows import Row
from hpml_jobs.report.frame.table import Table

PROFILER = (
    "torch.profiler over some iterations of one rank of one run, total seconds: compute + comm - "
    "overlap + idle = window; shares of the window in %. Instruments: communication in the same "
    "iterations by this program's own timers, and its distance from the profiler's (limit "
    f"{percent_text(PROFILER_LIMIT)}, or {{launch_ms}} ms per message)."
)


class ProfilerLine(NamedTuple):
    """The seconds of one trace by the profiler, and its communication by the instruments."""

    iterations: Annotated[int, Shown("iterations")]
    window_s: Annotated[float, Shown("window", seconds, "seconds")]
    compute_s: Annotated[float, Shown("compute", seconds, "seconds")]
    comm_s: Annotated[float, Shown("comm", seconds, "seconds")]
    overlap_s: Annotated[float, Shown("overlap", seconds, "seconds")]
    idle_s: Annotated[float, Shown("idle", seconds, "seconds")]
    compute_share: Annotated[Number, Shown("compute", percent, "% of window")]
    comm_share: Annotated[Number, Shown("comm", percent, "% of window")]
    overlap_share: Annotated[Number, Shown("overlap", percent, "% of window")]
    idle_share: Annotated[Number, Shown("idle", percent, "% of window")]
    instruments_comm_s: Annotated[Number, Shown("comm, s", seconds, "instruments")]
    disagreement: Annotated[Number, Shown("off by %", percent, "instruments")]
    messages: int
    instruments_messages: int | None
    message_bytes: int
    instruments_bytes: int | None

    @classmethod
    def of(cls, trace: ProfilerSummary) -> Self:
        """Return the line of a trace."""
        shares = {
            f"{name}_share": getattr(trace, f"{name}_s") / trace.window_s
            if trace.window_s
            else None
            for name in ("compute", "comm", "overlap", "idle")
        }
        return filled(cls, trace, **shares)


def profiler(group: ConditionGroup) -> Table | None:
    """Return the profiler's seconds beside the instruments'; None without a trace."""
    lines = [
        (row, ProfilerLine.of(trace)) for row in group.timed if (trace := trace_of(group, row))
    ]
    if not lines:
        return None
    rows = [row for row, _ in lines]
    profiler_text = PROFILER.format(launch_ms=LAUNCH_MS[group.device])
    caption = (profiler_text, captions.runs(rows))
    text = TableText(
        "profiler", "Profiler cross-check", "", caption, on_screen=False, affected=Affected.SPLIT
    )
    notes = left_out(group, "no trace", rest(group.rows, rows))
    return line_table(group, text, lines, columns_of(ProfilerLine), notes)


def trace_of(group: ConditionGroup, row: Row) -> ProfilerSummary | None:
    """Return the trace of the first rank and run that has one."""
    traces = (rank.profiler for record in group.records(row) for rank in record.ranks)
    return next((trace for trace in traces if trace), None)


PROFILE_CAPTION = (
    "torch.profiler over some iterations of one rank of the first run; shares of their time. "
    "Overlap: computation and communication at the same time; idle: neither."
)

ACTIVITIES = {
    "computation": style.BLUE,
    "overlap": style.SKY,
    "communication": style.RED,
    "idle": style.PALE,
}
"""The parts of a bar, from the left."""

INKS = (style.ON_STRONG, style.ON_WEAK, style.ON_STRONG, style.ON_WEAK)
"""The colours of the numbers in them."""


class Shares(NamedTuple):
    """The profiler's window of one place: the percentages of the activities."""

    label: str
    percentages: tuple[float, ...]


def profile_picture(groups: Sequence[ConditionGroup]) -> Picture | None:
    """Plot the stacked activities of each cell; None if no cell was profiled."""

    def draw(axis: Axes, cells: Sequence[Shares]) -> list[str]:
        by_activity = zip(*(cell.percentages for cell in cells), strict=True)
        stack(axis, range(len(cells)), dict(zip(ACTIVITIES.values(), by_activity, strict=True)))
        for row, cell in enumerate(cells):
            ends = [*accumulate(cell.percentages)]
            for width, end, ink in zip(cell.percentages, ends, INKS, strict=True):
                if width >= 5:  # the number has room
                    place, text = (end - width / 2, row), f"{width:.0f}"
                    axis.text(*place, text, color=ink, ha="center", va="center", size=8)
        axis.set_xlim(0, 100)
        axis.grid(visible=False)
        return [
            f"{cell.label} {cell.percentages[0]:.0f} % computation only, "
            f"{cell.percentages[2]:.0f} % communication only"
            for cell in cells
        ]

    return rows(
        "Time by activity, from the profiler",
        [shares for group in groups for shares in _shares(group)],
        draw,
        x="% of the time",
        alt="Time by activity: ",
        caption=[PROFILE_CAPTION],
        legend=ACTIVITIES,
        file="profiler.csv",
        between=", ",
    )


def _shares(group: ConditionGroup) -> Iterator[Shares]:
    """Yield the activities of the first profiled rank of each place, which add up to 100 %."""
    for row in group.rows:
        ranks = [rank for record in group.records(row) for rank in record.ranks]
        of_ranks = (rank.profiler for rank in ranks if rank.profiler and rank.profiler.window_s)
        if trace := next(of_ranks, None):
            label = named(group, captions.cell_label(row.place, group.device))
            parts_s = (
                trace.compute_s - trace.overlap_s,
                trace.overlap_s,
                trace.comm_s - trace.overlap_s,
                trace.idle_s,
            )
            yield Shares(label, tuple(100 * (part_s / trace.window_s) for part_s in parts_s))
