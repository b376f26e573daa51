"""Full table of the phases of the instrumented epoch, with their range over ranks."""

from collections.abc import Callable
from typing import NamedTuple

from hpml_jobs.checks.result import Affected
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.rows import Row
from hpml_jobs.report.merge.run_values import PhaseTimes, phase_times
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
from hpml_jobs.report.text.numbers import percent, seconds

PHASES_CAPTION = (
    "E2, seconds per epoch on the rank that waits least for others; below, least..most over all "
    "ranks and runs if they differ. The six phases add up to the epoch except for closure = "
    "|epoch - sum| / epoch. E2/E1: cost of the instruments. Collectives inside forward (ddp's "
    "buffers, fsdp's parameters) and inside the optimizer (zero1's parameters) count there here, "
    "and as Comm in Table 2. Pack: the part of backward that copies into and out of messages and "
    "averages by hand; it is Comm in Table 2."
)


class Phase(NamedTuple):
    """One phase: its name in the CSV, its heading on a page, and its seconds."""

    name: str
    head: str
    seconds: Callable[[PhaseTimes], float | None]


PHASES = (
    Phase("stall", "stall", lambda times: times.stall_s),
    Phase("h2d", "h2d", lambda times: times.h2d_s),
    Phase("forward", "forward", lambda times: times.forward_s),
    Phase("backward", "backward", lambda times: times.backward_s),
    Phase("comm_exposed", "comm", lambda times: times.comm_exposed_s),
    Phase("optimizer", "optimizer", lambda times: times.optimizer_s),
)
"""The phases that add up to the instrumented epoch."""


def phases(group: ConditionGroup) -> Table | None:
    """Return where the time of the instrumented epoch went."""
    rows = [row for row in group.timed if _times(row).closure is not None]
    if not rows:
        return None
    heads: tuple[Columns[Row], ...] = (
        Columns("seconds of E2", tuple(_seconds(group, phase) for phase in PHASES)),
        Columns(
            "%",
            (
                column("closure", "closure", lambda row: _times(row).closure, percent),
                column("overhead", "E2/E1", lambda row: _times(row).overhead, percent),
            ),
        ),
        Columns(
            "of backward", (column("pack_s", "pack", lambda row: _times(row).pack_s, seconds),)
        ),
        Columns("", tuple(end for phase in PHASES for end in _ends(group, phase))),
    )
    text = TableText(
        "phases",
        "Phases of the instrumented epoch",
        "E2",
        (PHASES_CAPTION, captions.runs(rows)),
        on_screen=False,
        below="  least..most",
        affected=Affected.SPLIT,
    )
    notes = left_out(group, UNMEASURED, rest(group.rows, rows))
    return row_table(group, text, rows, heads, notes)


def _times(row: Row) -> PhaseTimes:
    return row.values.phases if row.values else PhaseTimes()


def _seconds(group: ConditionGroup, phase: Phase) -> Column[Row]:
    return column(
        f"phase_{phase.name}_s",
        phase.head,
        lambda row: phase.seconds(_times(row)),
        seconds,
        below=lambda row: _range_text(group, row, phase),
    )


def _ends(group: ConditionGroup, phase: Phase) -> tuple[Column[Row], Column[Row]]:
    """Return the least and the most of a phase over ranks and runs, for the CSV."""
    return (
        column(f"phase_{phase.name}_least_s", "", lambda row: min(_by_rank(group, row, phase))),
        column(f"phase_{phase.name}_most_s", "", lambda row: max(_by_rank(group, row, phase))),
    )


def _by_rank(group: ConditionGroup, row: Row, phase: Phase) -> list[float]:
    """Return the seconds of a phase on every rank of every run."""
    ranks = [rank for record in group.counted_records(row, Affected.SPLIT) for rank in record.ranks]
    times = [phase.seconds(phase_times(rank.phases)) for rank in ranks if rank.phases]
    return [time_s for time_s in times if time_s is not None]


def _range_text(group: ConditionGroup, row: Row, phase: Phase) -> str:
    """Return the range over ranks and runs; empty if there is none to see."""
    times_s = _by_rank(group, row, phase)
    if row.gpus == 1 and len(row.runs) == 1:
        return ""
    least, most = min(times_s), max(times_s)
    return "" if seconds(least) == seconds(most) else f"{seconds(least)}..{seconds(most)}"
