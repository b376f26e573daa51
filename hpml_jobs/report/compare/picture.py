"""Picture of the comparison of two studies: the change of every cell with its interval."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from hpml_jobs.core.text import percent_text
from hpml_jobs.report.compare.rules import ComparedCell, ComparedGroup, StudyComparison
from hpml_jobs.report.compare.words import names_of
from hpml_jobs.report.frame import style
from hpml_jobs.report.frame.captions import cell_label
from hpml_jobs.report.frame.decision import LEAST_GAP, Decision
from hpml_jobs.report.frame.marks import MARK
from hpml_jobs.report.frame.picture import Axes, Entry, Picture, rows
from hpml_jobs.report.frame.svg import files_of

NO_DIFFERENCE, NOT_DECIDED = "no difference seen", "not decided"
VERDICTS: dict[Decision | None, str] = {
    Decision.SLOWER: "slower",
    Decision.FASTER: "faster",
    Decision.SAME: NO_DIFFERENCE,
    Decision.BELOW_GAP: NO_DIFFERENCE,
}
"""What is said of decisions; the others are not decided."""

COLOURS = {
    "slower": style.RED,
    "faster": style.BLUE,
    NO_DIFFERENCE: style.BLACK,
    NOT_DECIDED: style.MIDDLE_GREY,
}
"""The colours of the verdicts."""

LIMIT: Any = {"color": style.RED, "lw": 1.2, "ls": (0, (4, 3))}
"""The properties of the line of a limit."""

CAPTION = (
    "Change of the time from A ({old}) to B ({new}): ratio of times (Hodges-Lehmann) with "
    "its 95 % interval. Grey band: 2 %, below which no difference is called. Hollow: medians, too "
    "few runs to tell or a failed check. {mark} a check warns."
)


class Change(NamedTuple):
    """The change of a cell from one study to the other, and its verdict."""

    label: str
    verdict: str
    cell: ComparedCell


def picture_files(
    comparison: StudyComparison, answer: str, limit: float | None
) -> dict[str, bytes]:
    """Return compare.png and compare.svg; nothing without a shared cell."""
    with style.applied():
        picture = comparison_picture(comparison, answer, limit)
    return files_of(picture._replace(name="compare")) if picture else {}


def comparison_picture(
    comparison: StudyComparison, answer: str, limit: float | None
) -> Picture | None:
    """Plot the change of every shared cell; None without one."""
    cells = [
        Change(_label(comparison, group, cell), VERDICTS.get(cell.decision, NOT_DECIDED), cell)
        for group in comparison.groups
        for cell in group.measured
    ]

    def draw(axis: Axes, cells: Sequence[Change]) -> list[str]:
        axis.axvspan(-100 * LEAST_GAP, 100 * LEAST_GAP, color=style.PALE, alpha=0.5, lw=0, zorder=0)
        axis.axvline(0, color=style.BLACK, lw=1)
        if limit is not None:
            axis.axvline(100 * limit, **LIMIT)
        for row, (_, verdict, cell) in enumerate(cells):
            (estimate, interval), colour = cell.ratio, COLOURS[verdict]
            is_decided = verdict != NOT_DECIDED
            if interval and is_decided:
                ends = [100 * (interval.low - 1), 100 * (interval.high - 1)]
                axis.plot(ends, [row, row], color=colour, lw=1.8, marker="|", ms=7)
            face = colour if is_decided else style.PAPER
            axis.plot(
                [100 * (estimate - 1)], [row], color=colour, marker="o", ms=6, mfc=face, ls=""
            )
        return []

    verdicts = {change.verdict for change in cells}
    looks: dict[str, Entry] = {
        name: {"color": colour, "marker": "o", "ms": 4}
        for name, colour in COLOURS.items()
        if name in verdicts
    }
    if limit is not None:
        looks[f"limit {percent_text(limit)}"] = LIMIT | {"lw": 1.4}
    names = names_of(comparison)
    return rows(
        f"{names.new} against {names.old}",
        cells,
        draw,
        x="change of the time, %   (left: B is faster, right: B is slower)",
        alt=answer,
        caption=[answer, CAPTION.format(old=names.old, new=names.new, mark=MARK)],
        legend=looks,
        file="compare --json",
    )


def _label(comparison: StudyComparison, group: ComparedGroup, cell: ComparedCell) -> str:
    label = cell_label(cell.place, group.new.device)
    mark = f"{MARK} " if cell.is_doubtful else ""
    workload = f"{group.new.work[0]}: " if len(comparison.groups) > 1 else ""
    return f"{mark}{workload}{label}"
