"""The profiler's results, an independent check of the instruments, as a sheet."""

from typing import NamedTuple, Self

from hpml_jobs.core.measurements import ProfilerSummary
from hpml_jobs.report.frame.builder import Number, filled, row_sheet
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.rows import Row
from hpml_jobs.report.frame.table import Sheet


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


def profiler(group: ConditionGroup) -> Sheet | None:
    """Return the profiler's seconds beside the instruments'; None without a trace."""
    lines = [(row, line) for row in group.timed if (line := profiler_line(group, row))]
    return row_sheet(group, ProfilerLine._fields, lines) if lines else None
