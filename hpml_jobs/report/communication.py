"""Communication: its table, the sheet of messages (lab Q6), the phases around it, their picture."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Annotated, NamedTuple, Self

from hpml_jobs.core import formulas
from hpml_jobs.core.check_result import Affected
from hpml_jobs.report.frame import captions, picture
from hpml_jobs.report.frame.numbers import percent, seconds
from hpml_jobs.report.frame.picture import Axes, Panel, Picture, cell_label, panels
from hpml_jobs.report.frame.table import (
    UNMEASURED,
    Column,
    Number,
    Sheet,
    Table,
    TableText,
    columns_of,
    left_out,
    line_from,
    line_table,
    missing_rows,
)
from hpml_jobs.results.cells import Setup
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row

COMMUNICATION = (
    "Of the slowest process. Total: seconds in collectives; overlap: the part of them in which it "
    "computes, too. Not overlapped: the rest, communication and waiting for other processes."
)


class CommunicationLine(NamedTuple):
    """The seconds of communication of a row, by every method."""

    comm_total_s: Annotated[Number, Column("total", seconds, "in collectives, s")]
    comm_exposed_s: Annotated[
        Number, Column("not overlapped", seconds, "in collectives, s")
    ]
    comm_forward_s: Number
    overlap_s: Number
    overlap: Annotated[Number, Column("overlap %", percent)]
    exchange_s: Number
    waiting_s: Number
    skew_s: Number
    net_s: Number
    rooted_s: Number
    pack_s: Number
    comm_cost_s: Number
    comm_cost_resolution_s: Number
    comm_s: Number
    comm_residual_s: Number

    @classmethod
    def of(cls, row: Row) -> Self:
        """Return the line of a row."""
        figures = row.figures
        total_s = figures.comm_total_s
        exposed_s = figures.comm_exposed_s
        overlap_s = None
        if total_s is not None and exposed_s is not None:
            overlap_s = formulas.overlap_s(total_s, exposed_s)
            overlap_s = round(overlap_s, 12)  # else 3e-17 s where both are equal
        return line_from(
            cls,
            figures,
            overlap_s=overlap_s,
            overlap=overlap_s / total_s if overlap_s is not None and total_s else None,
            comm_residual_s=row.residual.comm_s if row.residual else None,
        )


def communication(group: ConditionGroup) -> Table | None:
    """Return the table of communication times by every method, side by side."""
    parallel = [row for row in group.rows if row.gpus > 1]
    rows = [row for row in parallel if row.figures.comm_total_s is not None]
    if not rows:
        return None
    text = TableText(
        "communication",
        "Communication",
        "",
        (COMMUNICATION, captions.runs(rows)),
        affected=Affected.SPLIT,
    )
    notes = left_out(group, UNMEASURED, missing_rows(parallel, rows))
    lines = [(row, CommunicationLine.of(row)) for row in rows]
    return line_table(group, text, lines, columns_of(CommunicationLine), notes)


class SentMessages(NamedTuple):
    """Messages of one kind and size of a row; the last two are per iteration."""

    gpus: int
    nodes: int
    strategy: str
    treatment: str
    purpose: str
    kind: str
    dtype: str
    bytes: int
    per_iteration: float
    bytes_per_iteration: float


def messages(group: ConditionGroup) -> Sheet | None:
    """Return every kind of message; None if none was counted."""
    sent = tuple(chain.from_iterable(messages_by_setup(group).values()))
    return Sheet(columns=SentMessages._fields, rows=sent) if sent else None


def messages_by_setup(group: ConditionGroup) -> dict[Setup, list[SentMessages]]:
    """Return the messages of each row that has some, by its setup."""
    return {
        row.setup: sent_messages
        for row in group.timed
        if (sent_messages := list(_sent(row)))
    }


def _sent(row: Row) -> Iterator[SentMessages]:
    """Yield the messages of a row's first run that has them, the largest of each purpose first."""
    for record in row.records:
        iterations = record.instrumented_iterations
        if iterations and record.communication and record.communication.messages:
            sent_messages = sorted(
                record.communication.messages,
                key=lambda m: (m.purpose, -m.bytes, m.kind),
            )
            for message in sent_messages:
                times = message.count / iterations
                yield line_from(
                    SentMessages,
                    message,
                    row,
                    strategy=row.strategy.value,
                    per_iteration=times,
                    bytes_per_iteration=message.bytes * times,
                )
            return


PHASES_CAPTION = (
    "Seconds per {work} of the slowest process, with each part timed; copy: to the device. "
    "Overhead: how much timing the parts slows it (below zero: noise). Comm of Table 2 also has "
    "the communication in forward and optimizer."
)

OF_SCRIPT = (
    "Of a script, backward has the loss in it. Other: from the batch to the forward pass, copies "
    "to the device included, and from the step to the next batch."
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


PHASES = (
    Phase("stall", "data wait", picture.MIDDLE_GREY),
    Phase("h2d", "copy to device", picture.ORANGE),
    Phase("forward", "forward", picture.SKY),
    Phase("backward", "backward", picture.BLUE),
    Phase("comm_exposed", "backward communication", picture.RED),
    Phase("optimizer", "optimizer", picture.GREEN),
)
"""The phases that add up to the instrumented epoch of our own loop."""

OTHER = Phase("other", "other", picture.PURPLE)

# two blocks, because a block is never wider than a screen of 80 columns
FIRST, LATER = "seconds until forward", "seconds from backward on"


class PhaseLine(NamedTuple):
    """The seconds of a row's phases."""

    phase_stall_s: Annotated[Number, Column("data wait", seconds, FIRST)]
    phase_h2d_s: Annotated[Number, Column("copy", seconds, FIRST)]
    phase_forward_s: Annotated[Number, Column("forward", seconds, FIRST)]
    phase_backward_s: Annotated[Number, Column("backward", seconds, LATER)]
    phase_comm_exposed_s: Annotated[Number, Column("backward comm", seconds, LATER)]
    phase_optimizer_s: Annotated[Number, Column("optimizer", seconds, LATER)]
    phase_other_s: Annotated[Number, Column("other", seconds, LATER)]
    closure: Number
    overhead: Annotated[Number, Column("overhead %", percent)]
    pack_s: Number


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
    columns = columns_of(PhaseLine, without=() if OTHER in shown else ["phase_other_s"])
    caption = [
        PHASES_CAPTION.format(work=captions.work_text(group.work)),
        OF_SCRIPT if group.origin.has_other else "",
    ]
    text = TableText(
        "phases",
        "Phases of an epoch",
        "",
        (*caption, captions.runs(rows)),
        affected=Affected.SPLIT,
    )
    lines = [(row, line_from(PhaseLine, row.figures)) for row in rows]
    notes = left_out(group, UNMEASURED, missing_rows(group.rows, rows))
    return line_table(group, text, lines, columns, notes)


PICTURE_CAPTION = (
    "Seconds of the slowest process, with each part timed. Backward communication: not overlapped "
    "with backward."
)


ROWS = 48
"""The most cells of the picture."""


def phases_picture(groups: Sequence[ConditionGroup]) -> Picture | None:
    """Plot the stacked phases of each cell; None if no epoch was instrumented."""
    phases = max(map(phases_of, groups), key=len, default=PHASES)
    bars = []
    for group in groups:
        for row in group.timed:
            times_s = [phase.seconds(row) or 0.0 for phase in phases]
            is_doubtful = Affected.SPLIT in row.doubts
            label = cell_label(group, row.place, is_doubtful=is_doubtful)
            if any(times_s):
                bars.append((label, times_s))
    if not bars:
        return None
    labels, times = zip(*bars[:ROWS], strict=True)

    def draw(axis: Axes, _: Panel[None]) -> list[str]:
        places = range(len(labels))
        begins = [0.0] * len(labels)
        for phase, widths in zip(phases, zip(*times, strict=True), strict=True):
            axis.barh(places, widths, 0.72, left=begins, color=phase.colour, lw=0)
            begins = [sum(ends) for ends in zip(begins, widths, strict=True)]
        axis.set_yticks(places, labels)
        axis.set_xlabel(f"seconds per {captions.work_text(groups[0].work)}")
        axis.grid(visible=False, axis="y")
        axis.invert_yaxis()
        totals = zip(labels, begins, strict=True)
        return [f"{label} {seconds(total_s)} s" for label, total_s in totals]

    return panels(
        "Phases of an epoch",
        [Panel("", None)],
        draw,
        caption=[PICTURE_CAPTION],
        legend={phase.words: phase.colour for phase in phases},
        missing=[label for label, _ in bars[ROWS:]],
        height=1 + 0.2 * len(labels),
    )
