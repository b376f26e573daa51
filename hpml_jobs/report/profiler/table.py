"""The profiler's results, an independent check of the instruments."""

from typing import Annotated, NamedTuple, Self

from hpml_jobs.checks.profiling import LAUNCH_MS, PROFILER_LIMIT
from hpml_jobs.checks.result import Affected
from hpml_jobs.core.measurements import ProfilerSummary
from hpml_jobs.core.text import percent_text
from hpml_jobs.report.frame import captions
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
