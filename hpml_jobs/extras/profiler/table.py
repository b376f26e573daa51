"""The profiler in a report: its columns beside the phases, and its seconds."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Self

from hpml_jobs.core.measurements import ProfilerSummary
from hpml_jobs.core.place import Place
from hpml_jobs.core.text import percent_text
from hpml_jobs.extras.profiler.checks import LAUNCH_MS, PROFILER_LIMIT
from hpml_jobs.report.communication.phases import AddedColumns, phases
from hpml_jobs.report.frame.builder import (
    Column,
    Columns,
    GroupContext,
    Number,
    column,
    filled,
    row_sheet,
)
from hpml_jobs.report.frame.numbers import percent
from hpml_jobs.report.frame.table import Sheet, Table
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row

CAPTION = (
    "Profiler: torch.profiler over some iterations of one rank of one run; compute + comm - "
    "overlap + idle = 100 % of their time. Off by: how far our seconds of communication in "
    f"these iterations are from the profiler's (limit {percent_text(PROFILER_LIMIT)}, or "
    "{launch_ms} ms per message)."
)


class ProfilerLine(NamedTuple):
    """The seconds of one trace by torch.profiler, and its communication by the instruments.

    Of some iterations of one rank of one run: compute + comm - overlap + idle = window; shares are
    of the window. `disagreement`: the distance of the two seconds of communication, a share.
    """

    iterations: int
    window_s: float
    compute_s: float
    comm_s: float
    overlap_s: float
    idle_s: float
    compute_share: Number
    comm_share: Number
    overlap_share: Number
    idle_share: Number
    instruments_comm_s: Number
    disagreement: Number
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


def profiler_line(group: ConditionGroup, row: Row) -> ProfilerLine | None:
    """Return the line of the first rank and run of a row that has a trace."""
    traces = (rank.profiler for record in group.records(row) for rank in record.ranks)
    trace = next((trace for trace in traces if trace), None)
    return ProfilerLine.of(trace) if trace else None


def phases_beside_profiler(context: GroupContext) -> Table | None:
    """Return the table of phases with what the profiler says of the same cells."""
    group = context.group
    traces = {
        row.place: line for row in group.timed if (line := profiler_line(group, row))
    }
    if not traces:
        return phases(group)
    caption = CAPTION.format(launch_ms=LAUNCH_MS[group.device])
    return phases(group, AddedColumns(by_profiler(traces), caption))


def by_profiler(traces: Mapping[Place, ProfilerLine]) -> Columns[Row]:
    """Return what the profiler says of each row, in percent; profiler.csv has the seconds."""

    def share(
        head: str, of_line: Callable[[ProfilerLine], float | None]
    ) -> Column[Row]:
        def value(row: Row) -> float | None:
            line = traces.get(row.place)
            return of_line(line) if line else None

        return column("", head, value, percent)

    return Columns(
        "profiler, %",
        (
            share("compute", lambda line: line.compute_share),
            share("comm", lambda line: line.comm_share),
            share("overlap", lambda line: line.overlap_share),
            share("idle", lambda line: line.idle_share),
            share("off by", lambda line: line.disagreement),
        ),
    )


def profiler(group: ConditionGroup) -> Sheet | None:
    """Return the profiler's seconds beside the instruments'; None without a trace."""
    lines = [(row, line) for row in group.timed if (line := profiler_line(group, row))]
    return row_sheet(group, ProfilerLine._fields, lines) if lines else None
