"""Pictures with a bar for each cell: phases, communication, activities; and what bars share."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple

from hpml_jobs.checks.result import Affected
from hpml_jobs.report.communication.phases import PHASES
from hpml_jobs.report.frame import style
from hpml_jobs.report.frame.captions import cell_label
from hpml_jobs.report.frame.figures import Figures
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.marks import EXPLAINED, MARK
from hpml_jobs.report.frame.numbers import percent, seconds
from hpml_jobs.report.frame.picture import Axes, Labelled, Picture, named, rows
from hpml_jobs.report.frame.rows import Row
from hpml_jobs.report.report import Report, ReportGroup


class Bar(NamedTuple):
    """A cell of a picture, its label with the mark of checks."""

    label: str
    group: ConditionGroup
    row: Row


def bars(report: Report, affected: Affected, has_numbers: Callable[[Row], bool]) -> list[Bar]:
    """Return the cells that have numbers, in the order of the tables."""
    result = []
    for group in report.groups:
        source = group.source
        for row in filter(has_numbers, source.timed):
            mark = f"{MARK} " if source.doubts(row, affected) else ""
            label = named(report, group, cell_label(row.place, source.device))
            result.append(Bar(f"{mark}{label}", source, row))
    return result


def marked(cells: Iterable[Labelled]) -> str:
    """Return what the marks of labels mean, if there are any."""
    return f"{EXPLAINED}." if any(cell.label.startswith(MARK) for cell in cells) else ""


def stack(
    axis: Axes, at: Sequence[float], parts: Mapping[str, Sequence[float]], height: float = 0.72
) -> None:
    """Draw a bar at each place, stacked from the left of parts by their colours."""
    left = [0.0] * len(at)
    for colour, widths in parts.items():
        axis.barh(at, widths, left=left, color=colour, height=height, lw=0)
        left = [start + width for start, width in zip(left, widths, strict=True)]


# ---- phases of an epoch ----

PHASES_CAPTION = (
    "Instrumented epoch, seconds of the rank that waits least for others, medians over runs. "
    "Exposed communication: after the last gradient; collectives inside forward (ddp's buffers) "
    "are in forward."
)
PHASE_COLOURS = {
    "stall": style.MIDDLE_GREY,
    "copy to device": style.ORANGE,
    "forward": style.SKY,
    "backward": style.BLUE,
    "exposed communication": style.RED,
    "optimizer": style.GREEN,
}
"""The colours of the phases, in the order of the table's."""


def phases(report: Report) -> Picture | None:
    """Plot the stacked phases of each cell; None if no epoch was instrumented."""

    def times_s(row: Row) -> list[float]:
        return [phase.seconds(row) or 0.0 for phase in PHASES]

    def draw(axis: Axes, cells: Sequence[Bar]) -> list[str]:
        times = [times_s(bar.row) for bar in cells]
        by_phase = zip(*times, strict=True)
        stack(axis, range(len(cells)), dict(zip(PHASE_COLOURS.values(), by_phase, strict=True)))
        texts = []
        for bar, parts_s in zip(cells, times, strict=True):
            shares = [part_s / sum(parts_s) for part_s in parts_s]
            of = dict(zip(PHASE_COLOURS, shares, strict=True))
            longest = max(of, key=lambda name: of[name])
            texts.append(
                f"{bar.label} {seconds(sum(parts_s))} s, {percent(of[longest])} % {longest}, "
                f"{percent(of['exposed communication'])} % exposed communication"
            )
        return texts

    cells = bars(report, Affected.SPLIT, lambda row: sum(times_s(row)) > 0)
    return rows(
        "Phases of an epoch",
        cells,
        draw,
        x="seconds per epoch",
        alt="Phases of an epoch: ",
        caption=[PHASES_CAPTION, marked(cells)],
        legend=PHASE_COLOURS,
        file="phases.csv",
    )


# ---- computation and communication ----

COMMUNICATION_CAPTION = (
    "Instrumented epoch, seconds of the rank that waits least for others, medians over runs; "
    "bars: least and most of the runs. Computation: copies to the device, forward, backward, "
    "optimizer. Communication: seconds in which any collective is active; exposed: the part that "
    "no computation hides, waiting for later ranks included."
)
REPORTED = "Imported: as reported by the source, which does not say what is hidden."


def communication(report: Report) -> Picture | None:
    """Plot computation and communication of each cell; None if nothing was instrumented."""

    def total_s(values: Figures) -> float | None:  # of imported timings only a part is known
        return values.comm_exposed_s if values.comm_total_s is None else values.comm_total_s

    def is_split(row: Row) -> bool:
        return row.gpus > 1 and None not in (row.figures.compute_s, row.figures.comm_exposed_s)

    def draw(axis: Axes, cells: Sequence[Bar]) -> list[str]:
        above, below = ([at + aside for at in range(len(cells))] for aside in (-0.2, 0.2))
        figures = [bar.row.figures for bar in cells]
        computation = [of.compute_s or 0.0 for of in figures]
        exposed = [of.comm_exposed_s or 0.0 for of in figures]
        totals = [total_s(of) or 0.0 for of in figures]
        hidden = [max(0.0, total - part) for total, part in zip(totals, exposed, strict=True)]
        stack(axis, above, {style.BLUE: computation}, 0.36)
        stack(axis, below, {style.RED: exposed, style.PALE: hidden}, 0.36)
        ends = [
            (at, min(of_runs), max(of_runs))
            for places, of in ((above, attrgetter("compute_s")), (below, total_s))
            for at, bar in zip(places, cells, strict=True)
            if len(of_runs := [s for run in bar.row.runs if (s := of(run)) is not None]) > 1
        ]
        if ends:
            axis.hlines(*zip(*ends, strict=True), color=style.TEXT, lw=1)
        return [
            f"{bar.label} computation {seconds(compute_s)} s, communication {seconds(whole_s)} s, "
            f"of it exposed {seconds(exposed_s)} s"
            for bar, compute_s, whole_s, exposed_s in zip(
                cells, computation, totals, exposed, strict=True
            )
        ]

    cells = bars(report, Affected.SPLIT, is_split)
    imported = any(bar.group.imported for bar in cells)
    return rows(
        "Computation and communication",
        cells,
        draw,
        x="seconds per epoch",
        alt="Per epoch: ",
        caption=[COMMUNICATION_CAPTION, REPORTED if imported else "", marked(cells)],
        legend={
            "computation": style.BLUE,
            "exposed communication": style.RED,
            "hidden communication": style.PALE,
        },
        file="communication.csv",
        inches=0.45,
    )


# ---- the profiler's activities ----

PROFILE_CAPTION = (
    "torch.profiler over some iterations of one rank of the first run; shares of their time. "
    "Overlap: computation and communication at the same time; idle: neither."
)
ACTIVITIES = {
    "computation": style.BLUE,
    "overlap": style.SKY,
    "communication": style.RED,
    "idle": style.PALE,
}
"""The parts of a bar, from the left."""

INKS = (style.ON_STRONG, style.ON_WEAK, style.ON_STRONG, style.ON_WEAK)
"""The colours of the numbers in them."""


class Shares(NamedTuple):
    """The profiler's window of one place: the percentages of the activities."""

    label: str
    percentages: tuple[float, ...]


def profile(report: Report) -> Picture | None:
    """Plot the stacked activities of each cell; None if no cell was profiled."""

    def draw(axis: Axes, cells: Sequence[Shares]) -> list[str]:
        by_activity = zip(*(cell.percentages for cell in cells), strict=True)
        stack(axis, range(len(cells)), dict(zip(ACTIVITIES.values(), by_activity, strict=True)))
        for row, cell in enumerate(cells):
            ends = [*accumulate(cell.percentages)]
            for width, end, ink in zip(cell.percentages, ends, INKS, strict=True):
                if width >= 5:  # the number has room
                    place, text = (end - width / 2, row), f"{width:.0f}"
                    axis.text(*place, text, color=ink, ha="center", va="center", size=8)
        axis.set_xlim(0, 100)
        axis.grid(visible=False)
        return [
            f"{cell.label} {cell.percentages[0]:.0f} % computation only, "
            f"{cell.percentages[2]:.0f} % communication only"
            for cell in cells
        ]

    return rows(
        "Time by activity, from the profiler",
        [shares for group in report.groups for shares in _shares(report, group)],
        draw,
        x="% of the time",
        alt="Time by activity: ",
        caption=[PROFILE_CAPTION],
        legend=ACTIVITIES,
        file="profiler.csv",
        between=", ",
    )


def _shares(report: Report, group: ReportGroup) -> Iterator[Shares]:
    """Yield the activities of the first profiled rank of each place, which add up to 100 %."""
    for row in group.source.rows:
        ranks = [rank for record in group.source.records(row) for rank in record.ranks]
        of_ranks = (rank.profiler for rank in ranks if rank.profiler and rank.profiler.window_s)
        if trace := next(of_ranks, None):
            label = named(report, group, cell_label(row.place, group.source.device))
            parts_s = (
                trace.compute_s - trace.overlap_s,
                trace.overlap_s,
                trace.comm_s - trace.overlap_s,
                trace.idle_s,
            )
            yield Shares(label, tuple(100 * (part_s / trace.window_s) for part_s in parts_s))
