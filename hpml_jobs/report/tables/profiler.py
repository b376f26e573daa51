"""Full table of the profiler's view: an independent check of the instruments."""

from collections.abc import Callable

from hpml_jobs.checks.limits import PROFILER_LIMIT
from hpml_jobs.core.measurements import Trace
from hpml_jobs.core.text import percent_text
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.rows import Row
from hpml_jobs.report.table import Table
from hpml_jobs.report.tables.builder import About, Column, Columns, left_out, places, rest, table
from hpml_jobs.report.text import captions
from hpml_jobs.report.text import marks as judged
from hpml_jobs.report.text.numbers import percent, seconds

PROFILER = (
    "torch.profiler over some iterations of one rank of one run, seconds of all of them: compute + "
    "comm - overlap + idle = window; shares of the window in %. Instruments: communication that "
    "our own clocks saw in the same iterations, and how far it is from the profiler's (limit "
    f"{percent_text(PROFILER_LIMIT)}, "
    "above it: {mark})."
)


def profiler(group: ConditionGroup) -> Table | None:
    """The profiler's seconds beside the instruments'; None where it did not look."""
    own = [row for row in group.timed if trace_of(group, row)]
    if not own:
        return None

    def value(of: Callable[[Trace], float | None]) -> Callable[[Row], float | None]:
        def found(row: Row) -> float | None:
            trace = trace_of(group, row)
            return of(trace) if trace else None

        return found

    names = ("window", "compute", "comm", "overlap", "idle")
    heads: tuple[Columns[Row], ...] = (
        Columns("iterations", (Column("iterations", "", value(lambda t: t.iterations)),)),
        Columns(
            "seconds",
            tuple(Column(f"{name}_s", name, value(_seconds_of(name)), seconds) for name in names),
        ),
        Columns(
            "% of window",
            tuple(
                Column(f"{name}_share", name, value(_share_of(name)), percent) for name in names[1:]
            ),
        ),
        Columns(
            "instruments",
            (
                Column(
                    "instruments_comm_s", "comm, s", value(lambda t: t.instruments_comm_s), seconds
                ),
                Column("disagreement", "off by %", value(lambda t: t.disagreement), _disagreement),
            ),
        ),
        Columns(
            "",
            (
                Column("messages", "", value(lambda t: t.messages)),
                Column("instruments_messages", "", value(lambda t: t.instruments_messages)),
                Column("message_bytes", "", value(lambda t: t.message_bytes)),
                Column("instruments_bytes", "", value(lambda t: t.instruments_bytes)),
            ),
        ),
    )
    lost = rest(group.rows, own)
    caption = (PROFILER.format(mark=judged.MARK), captions.runs(own))
    about = About("profiler", "Profiler cross-check", "", caption, on_screen=False)
    return table(group, about, places(group, own, heads), left_out(group, "no trace", lost))


def trace_of(group: ConditionGroup, row: Row) -> Trace | None:
    """The trace of the first rank and run that has one."""
    traces = (rank.trace for record in group.records(row) for rank in record.ranks)
    return next((trace for trace in traces if trace), None)


def _seconds_of(name: str) -> Callable[[Trace], float]:
    return lambda trace: getattr(trace, f"{name}_s")


def _share_of(name: str) -> Callable[[Trace], float | None]:
    return lambda trace: getattr(trace, f"{name}_s") / trace.window_s if trace.window_s else None


def _disagreement(share: float) -> str:
    return f"{judged.MARK if share > PROFILER_LIMIT else ''}{percent(share)}"
