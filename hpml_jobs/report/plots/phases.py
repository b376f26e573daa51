"""Picture of the phases of an epoch: a bar per cell, stacked from stall to optimizer."""

from collections.abc import Sequence
from typing import NamedTuple

from hpml_jobs.checks.result import Affected
from hpml_jobs.report.merge.rows import Row
from hpml_jobs.report.plots import cells, style
from hpml_jobs.report.plots.cells import Bar
from hpml_jobs.report.plots.picture import Picture, listed, not_drawn, sentences
from hpml_jobs.report.report import Report
from hpml_jobs.report.tables.phases import PHASES
from hpml_jobs.report.text.numbers import percent, seconds

CAPTION = (
    "E2, the instrumented epoch, seconds of the rank that waits least for others, medians over "
    "runs. Exposed communication: after the last gradient; collectives inside forward (ddp's "
    "buffers) are in forward."
)


class Look(NamedTuple):
    """The name of a phase in a legend, and its colour."""

    name: str
    colour: str


LOOKS = {
    "stall": Look("stall", style.MIDDLE_GREY),
    "h2d": Look("copy to device", style.ORANGE),
    "forward": Look("forward", style.SKY),
    "backward": Look("backward", style.BLUE),
    "comm_exposed": Look("exposed communication", style.RED),
    "optimizer": Look("optimizer", style.GREEN),
}
"""The looks by the phases' names."""


def phases(report: Report) -> Picture | None:
    """Plot the stacked phases of each cell; None if no epoch was instrumented."""
    bars = cells.bars(report, Affected.SPLIT, lambda row: bool(sum(_seconds(row))))
    if not bars:
        return None
    shown = bars[: cells.BARS]
    figure, (axis,) = style.panels(1, height=cells.height(len(shown)))
    left = [0.0] * len(shown)
    for number, phase in enumerate(PHASES):
        widths = [_seconds(bar.row)[number] for bar in shown]
        colour = LOOKS[phase.name].colour
        axis.barh(range(len(shown)), widths, left=left, color=colour, height=0.72, lw=0)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    cells.label(axis, [bar.label for bar in shown], "seconds per epoch")
    style.legend(figure, {look.name: look.colour for look in LOOKS.values()})
    missing = [bar.label for bar in bars[len(shown) :]]
    marked = cells.MARKED if any(bar.is_marked for bar in shown) else ""
    caption = sentences(CAPTION, marked, not_drawn(missing, "phases.csv"))
    return Picture("Phases of an epoch", figure, _alt(shown), caption)


def _seconds(row: Row) -> list[float]:
    return [phase.seconds(row) or 0.0 for phase in PHASES]


def _alt(shown: Sequence[Bar]) -> str:
    """Return the longest phase and the exposed communication of each cell."""
    names = [LOOKS[phase.name].name for phase in PHASES]
    texts = []
    for bar in shown:
        times = dict(zip(names, _seconds(bar.row), strict=True))
        whole, longest = sum(times.values()), max(times, key=lambda name: times[name])
        texts.append(
            f"{bar.label} {seconds(whole)} s, {percent(times[longest] / whole)} % {longest}, "
            f"{percent(times['exposed communication'] / whole)} % exposed communication"
        )
    return f"Phases of an epoch: {listed(texts, '; ')}."
