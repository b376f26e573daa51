"""Full table of the profiler's results: an independent check of the instruments."""

from collections.abc import Callable
from typing import NamedTuple

from hpml_jobs.checks.profiling import LAUNCH_MS, PROFILER_LIMIT
from hpml_jobs.checks.result import Affected
from hpml_jobs.core.measurements import ProfilerSummary
from hpml_jobs.core.text import percent_text
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.rows import Row
from hpml_jobs.report.table import Table
from hpml_jobs.report.tables.builder import (
    Column,
    Columns,
    TableText,
    column,
    left_out,
    rest,
    row_table,
)
from hpml_jobs.report.text import captions
from hpml_jobs.report.text.numbers import percent, seconds

PROFILER = (
    "torch.profiler over some iterations of one rank of one run, total seconds: compute + comm - "
    "overlap + idle = window; shares of the window in %. Instruments: communication in the same "
    "iterations by this program's own timers, and its distance from the profiler's (limit "
    f"{percent_text(PROFILER_LIMIT)}, or {{launch_ms}} ms per message)."
)


class Activity(NamedTuple):
    """An activity of one rank in the profiler's window: its name and its seconds."""

    name: str
    seconds: Callable[[ProfilerSummary], float]


ACTIVITIES = (
    Activity("compute", lambda trace: trace.compute_s),
    Activity("comm", lambda trace: trace.comm_s),
    Activity("overlap", lambda trace: trace.overlap_s),
    Activity("idle", lambda trace: trace.idle_s),
)


def profiler(group: ConditionGroup) -> Table | None:
    """Return the profiler's seconds beside the instruments'; None without a trace."""
    rows = [row for row in group.timed if trace_of(group, row)]
    if not rows:
        return None

    def traced(
        name: str,
        head: str,
        value: Callable[[ProfilerSummary], float | None],
        text: Callable[[float], str] = str,
    ) -> Column[Row]:
        def value_of(row: Row) -> float | None:
            trace = trace_of(group, row)
            return value(trace) if trace else None

        return column(name, head, value_of, text)

    shares = [(activity.name, _share(activity)) for activity in ACTIVITIES]
    heads = (
        Columns("iterations", (traced("iterations", "", lambda trace: trace.iterations),)),
        Columns(
            "seconds",
            (
                traced("window_s", "window", lambda trace: trace.window_s, seconds),
                *(traced(f"{a.name}_s", a.name, a.seconds, seconds) for a in ACTIVITIES),
            ),
        ),
        Columns(
            "% of window",
            tuple(traced(f"{name}_share", name, share, percent) for name, share in shares),
        ),
        Columns(
            "instruments",
            (
                traced("instruments_comm_s", "comm, s", lambda t: t.instruments_comm_s, seconds),
                traced("disagreement", "off by %", lambda t: t.disagreement, percent),
            ),
        ),
        Columns(
            "",
            (
                traced("messages", "", lambda trace: trace.messages),
                traced("instruments_messages", "", lambda trace: trace.instruments_messages),
                traced("message_bytes", "", lambda trace: trace.message_bytes),
                traced("instruments_bytes", "", lambda trace: trace.instruments_bytes),
            ),
        ),
    )
    profiler_text = PROFILER.format(launch_ms=LAUNCH_MS[group.device])
    caption = (profiler_text, captions.runs(rows))
    text = TableText(
        "profiler", "Profiler cross-check", "", caption, on_screen=False, affected=Affected.SPLIT
    )
    notes = left_out(group, "no trace", rest(group.rows, rows))
    return row_table(group, text, rows, heads, notes)


def _share(activity: Activity) -> Callable[[ProfilerSummary], float | None]:
    return lambda trace: activity.seconds(trace) / trace.window_s if trace.window_s else None


def trace_of(group: ConditionGroup, row: Row) -> ProfilerSummary | None:
    """Return the trace of the first rank and run that has one."""
    traces = (rank.profiler for record in group.records(row) for rank in record.ranks)
    return next((trace for trace in traces if trace), None)
