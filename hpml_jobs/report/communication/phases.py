"""The instrumented epoch: a table and a picture of its phases."""

from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec

from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.measurements import Phases
from hpml_jobs.report.frame import captions, style
from hpml_jobs.report.frame.numbers import percent, seconds
from hpml_jobs.report.frame.picture import Axes, Bar, Picture, bars, marked, rows
from hpml_jobs.report.frame.table import (
    UNMEASURED,
    Column,
    Line,
    Number,
    Table,
    TableText,
    columns_of,
    filled,
    left_out,
    line_table,
    rest,
)
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row

PHASES_CAPTION = (
    "Seconds per {work} on the rank that waits least for others; below, least..most over all ranks "
    "and runs if they differ. The six phases add up to the epoch but for what is unaccounted: "
    "|epoch - sum| / epoch. Overhead: instrumented epoch / timed epoch - 1, by the instruments. "
    "Pack: the part of backward that copies into and out of messages and averages by hand. Comm of "
    "Table 2 is backward comm + pack + the collectives inside forward (ddp's buffers, fsdp's "
    "parameters) and inside the optimizer (zero1's parameters)."
)

OF_SCRIPT = (
    "Of a script, backward is all from the forward pass to the step, the loss included, and a "
    "seventh phase, other, what nothing accounts for: from the batch to the forward pass, copies "
    "to the device included, and from the step to the next batch. It is neither computation nor "
    "communication."
)


class Phase(NamedTuple):
    """One phase: its name in the files, its words and colour in a picture."""

    name: str
    words: str
    colour: str

    def seconds(self, row: Row) -> float | None:
        """Return the seconds of the phase in a row's medians."""
        time_s: float | None = getattr(row.figures, f"phase_{self.name}_s")
        return time_s

    def on_rank(self, phases: Phases) -> float:
        """Return the seconds of the phase on one rank."""
        time_s: float = getattr(phases, f"{self.name}_s") or 0.0
        return time_s


PHASES = (
    Phase("stall", "stall", style.MIDDLE_GREY),
    Phase("h2d", "copy to device", style.ORANGE),
    Phase("forward", "forward", style.SKY),
    Phase("backward", "backward", style.BLUE),
    Phase("comm_exposed", "backward communication", style.RED),
    Phase("optimizer", "optimizer", style.GREEN),
)
"""The phases that add up to the instrumented epoch of our own loop."""

OTHER = Phase("other", "other", style.PURPLE)

# two blocks, because a block is never wider than a screen of 80 columns
FIRST, LATER = "seconds until forward", "seconds from backward on"


class PhaseLine(NamedTuple):
    """The seconds of a row's phases, and the least and the most over its ranks and runs."""

    phase_stall_s: Annotated[Number, Column("stall", seconds, FIRST)]
    phase_h2d_s: Annotated[Number, Column("h2d", seconds, FIRST)]
    phase_forward_s: Annotated[Number, Column("forward", seconds, FIRST)]
    phase_backward_s: Annotated[Number, Column("backward", seconds, LATER)]
    phase_comm_exposed_s: Annotated[Number, Column("backward comm", seconds, LATER)]
    phase_optimizer_s: Annotated[Number, Column("optimizer", seconds, LATER)]
    phase_other_s: Annotated[Number, Column("other", seconds, LATER)]
    closure: Annotated[Number, Column("unaccounted", percent, "%")]
    overhead: Annotated[Number, Column("overhead", percent, "%")]
    pack_s: Annotated[Number, Column("pack", seconds, "of backward")]
    phase_stall_least_s: float
    phase_stall_most_s: float
    phase_h2d_least_s: float
    phase_h2d_most_s: float
    phase_forward_least_s: float
    phase_forward_most_s: float
    phase_backward_least_s: float
    phase_backward_most_s: float
    phase_comm_exposed_least_s: float
    phase_comm_exposed_most_s: float
    phase_optimizer_least_s: float
    phase_optimizer_most_s: float
    phase_other_least_s: float
    phase_other_most_s: float


OF_OTHER = ("phase_other_s", "phase_other_least_s", "phase_other_most_s")


def phases_of(group: ConditionGroup) -> tuple[Phase, ...]:
    """Return the phases that add up to the instrumented epochs of a group."""
    has_other = any(row.figures.phase_other_s is not None for row in group.timed)
    return (*PHASES, OTHER) if has_other else PHASES


def phases(group: ConditionGroup) -> Table | None:
    """Return where the time of the instrumented epoch went; below a row, its ranges over ranks."""
    rows = [row for row in group.timed if row.figures.closure is not None]
    if not rows:
        return None
    shown = phases_of(group)
    columns = columns_of(PhaseLine, without=() if OTHER in shown else OF_OTHER)
    caption = [
        PHASES_CAPTION.format(work=captions.work_text(group.work)),
        OF_SCRIPT if group.origin.has_other else "",
    ]
    text = TableText(
        "phases",
        "Phases of the instrumented epoch",
        "instrumented epoch",
        (*caption, captions.runs(rows)),
        affected=Affected.SPLIT,
    )
    ranges = [_ranges(group, row) for row in rows]
    phase_lines = [
        (row, filled(PhaseLine, row.figures, **of_row))
        for row, of_row in zip(rows, ranges, strict=True)
    ]
    notes = left_out(group, UNMEASURED, rest(group.rows, rows))
    table = line_table(group, text, phase_lines, columns, notes)
    lines = []
    for line, row, of_row in zip(table.lines, rows, ranges, strict=True):
        below = [
            _range_text(row, of_row, field)
            for field, column in columns.items()
            if column.is_on_page
        ]
        lines.append(line)
        if any(below):
            lines.append(Line("  least..most", tuple(below)))
    return msgspec.structs.replace(table, lines=tuple(lines))


def _ranges(group: ConditionGroup, row: Row) -> dict[str, float]:
    """Return the least and the most seconds of each phase over the ranks and runs of a row."""
    ranks = [
        (record.per_instrumented, rank.phases)
        for record in group.counted_records(row, Affected.SPLIT)
        for rank in record.ranks
        if rank.phases
    ]
    ranges = {}
    for phase in (*PHASES, OTHER):
        times_s = [times * phase.on_rank(of_rank) for times, of_rank in ranks]
        ranges[f"phase_{phase.name}_least_s"] = min(times_s)
        ranges[f"phase_{phase.name}_most_s"] = max(times_s)
    return ranges


def _range_text(row: Row, ranges: Mapping[str, float], field: str) -> str:
    """Return the range of a phase; empty if there is none to see, or of another column."""
    name = field.removesuffix("_s")
    if f"{name}_least_s" not in ranges or (row.gpus == 1 and len(row.runs) == 1):
        return ""
    least = seconds(ranges[f"{name}_least_s"])
    most = seconds(ranges[f"{name}_most_s"])
    return "" if least == most else f"{least}..{most}"


PICTURE_CAPTION = (
    "Instrumented epoch, seconds of the rank that waits least for others, medians over runs. "
    "Backward communication: collectives that backward does not hide. Comm of Table 2 also has "
    "those of forward (ddp's buffers) and optimizer (zero1's parameters), and packing."
)


def phases_picture(groups: Sequence[ConditionGroup]) -> Picture | None:
    """Plot the stacked phases of each cell; None if no epoch was instrumented."""
    phases = max(map(phases_of, groups), key=len, default=PHASES)

    def times_s(row: Row) -> list[float]:
        return [phase.seconds(row) or 0.0 for phase in phases]

    cells = bars(groups, Affected.SPLIT, lambda row: sum(times_s(row)) > 0)
    times = [times_s(bar.row) for bar in cells]

    def draw(axis: Axes, shown: Sequence[Bar]) -> list[str]:
        begins = [0.0] * len(shown)
        places = range(len(shown))
        of_phases = zip(*times[: len(shown)], strict=True)
        for phase, widths in zip(phases, of_phases, strict=True):
            axis.barh(places, widths, 0.72, left=begins, color=phase.colour, lw=0)
            begins = [sum(ends) for ends in zip(begins, widths, strict=True)]
        return [_bar_text(bar, phases) for bar in shown]

    visible = {}
    for number, phase in enumerate(phases):
        # at least 1/300 of a bar
        if any(300 * of_bar[number] > sum(of_bar) for of_bar in times):
            visible[phase.words] = phase.colour
    return rows(
        "Phases of an epoch",
        cells,
        draw,
        x=captions.per_work(groups),
        alt="Phases of an epoch: ",
        caption=[PICTURE_CAPTION, marked(cells)],
        legend=visible,
        file="phases.csv",
    )


def _bar_text(bar: Bar, phases: Sequence[Phase]) -> str:
    """Return the seconds of a bar, with the shares of its longest phase and of communication."""
    times_s = {phase.words: phase.seconds(bar.row) or 0.0 for phase in phases}
    total_s = sum(times_s.values())
    longest = max(times_s, key=lambda name: times_s[name])
    communication = "backward communication"
    return (
        f"{bar.label} {seconds(total_s)} s, {percent(times_s[longest] / total_s)} % {longest}, "
        f"{percent(times_s[communication] / total_s)} % {communication}"
    )
