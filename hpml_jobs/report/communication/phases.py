"""The instrumented epoch: a table and a picture of its phases."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.measurements import Phases
from hpml_jobs.core.place import Place
from hpml_jobs.report.frame import captions, style
from hpml_jobs.report.frame.builder import (
    UNMEASURED,
    Column,
    Columns,
    TableText,
    column,
    left_out,
    line_table,
    rest,
)
from hpml_jobs.report.frame.numbers import percent, seconds
from hpml_jobs.report.frame.picture import Axes, Bar, Picture, bars, marked, rows
from hpml_jobs.report.frame.table import Table
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row

PHASES_CAPTION = (
    "Seconds per {work} on the rank that waits least for others; below, least..most over all ranks "
    "and runs if they differ. The six phases add up to the epoch except for closure = |epoch - "
    "sum| / epoch. Overhead: instrumented epoch / timed epoch - 1, the cost of the instruments. "
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
    """One phase: its name in the CSV, its heading on a page, its words and colour in a picture."""

    name: str
    head: str
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
    Phase("stall", "stall", "stall", style.MIDDLE_GREY),
    Phase("h2d", "h2d", "copy to device", style.ORANGE),
    Phase("forward", "forward", "forward", style.SKY),
    Phase("backward", "backward", "backward", style.BLUE),
    Phase("comm_exposed", "backward comm", "backward communication", style.RED),
    Phase("optimizer", "optimizer", "optimizer", style.GREEN),
)
"""The phases that add up to the instrumented epoch of our own loop."""

OTHER = Phase("other", "other", "other", style.PURPLE)


def phases_of(group: ConditionGroup) -> tuple[Phase, ...]:
    """Return the phases that add up to the instrumented epochs of a group."""
    has_other = any(row.figures.phase_other_s is not None for row in group.timed)
    return (*PHASES, OTHER) if has_other else PHASES


def phases(group: ConditionGroup) -> Table | None:
    """Return where the time of the instrumented epoch went."""
    rows = [row for row in group.timed if row.figures.closure is not None]
    if not rows:
        return None
    shown = phases_of(group)
    ranges = {row.place: _ranges(group, row) for row in rows}
    in_seconds = [_seconds(phase, ranges) for phase in shown]
    heads: list[Columns[Row]] = [
        # two blocks, because a block is never wider than a screen of 80 columns
        Columns("seconds", tuple(in_seconds[:3])),
        Columns("seconds", tuple(in_seconds[3:])),
        Columns(
            "%",
            (
                column("closure", "closure", lambda row: row.figures.closure, percent),
                column(
                    "overhead", "overhead", lambda row: row.figures.overhead, percent
                ),
            ),
        ),
        Columns(
            "of backward",
            (column("pack_s", "pack", lambda row: row.figures.pack_s, seconds),),
        ),
        Columns("", tuple(end for phase in shown for end in _ends(phase, ranges))),
    ]
    caption = [
        PHASES_CAPTION.format(work=captions.work_text(group.work)),
        OF_SCRIPT if group.origin.has_other else "",
    ]
    text = TableText(
        "phases",
        "Phases of the instrumented epoch",
        "instrumented epoch",
        (*caption, captions.runs(rows)),
        below="  least..most",
        affected=Affected.SPLIT,
    )
    notes = left_out(group, UNMEASURED, rest(group.rows, rows))
    return line_table(group, text, [(row, row) for row in rows], heads, notes)


class Range(NamedTuple):
    """The least and the most seconds of a phase over the ranks and runs of a row."""

    least_s: float
    most_s: float


Ranges = Mapping[Place, Mapping[Phase, Range]]


def _ranges(group: ConditionGroup, row: Row) -> dict[Phase, Range]:
    ranks = [
        (record.per_instrumented, rank.phases)
        for record in group.counted_records(row, Affected.SPLIT)
        for rank in record.ranks
        if rank.phases
    ]
    ranges = {}
    for phase in phases_of(group):
        times_s = [times * phase.on_rank(of_rank) for times, of_rank in ranks]
        ranges[phase] = Range(min(times_s), max(times_s))
    return ranges


def _seconds(phase: Phase, ranges: Ranges) -> Column[Row]:
    return column(
        f"phase_{phase.name}_s",
        phase.head,
        phase.seconds,
        seconds,
        below=lambda row: _range_text(row, ranges[row.place][phase]),
    )


def _ends(phase: Phase, ranges: Ranges) -> tuple[Column[Row], Column[Row]]:
    """Return the least and the most of a phase over ranks and runs, for the CSV."""
    name = f"phase_{phase.name}"

    def least_s(row: Row) -> float:
        return ranges[row.place][phase].least_s

    def most_s(row: Row) -> float:
        return ranges[row.place][phase].most_s

    return column(f"{name}_least_s", "", least_s), column(f"{name}_most_s", "", most_s)


def _range_text(row: Row, of_phase: Range) -> str:
    """Return the range over ranks and runs; empty if there is none to see."""
    if row.gpus == 1 and len(row.runs) == 1:
        return ""
    least = seconds(of_phase.least_s)
    most = seconds(of_phase.most_s)
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
