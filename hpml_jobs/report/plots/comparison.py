"""Picture of the comparison of two studies: the change of every cell with its interval."""

from typing import TYPE_CHECKING

from hpml_jobs.core.text import percent_text
from hpml_jobs.report.merge.comparison import ComparedCell, ComparedGroup, StudyComparison
from hpml_jobs.report.merge.decision import LEAST_GAP, Decision
from hpml_jobs.report.plots import files_of, style
from hpml_jobs.report.plots.picture import Picture, not_drawn, sentences
from hpml_jobs.report.text.captions import cell_label
from hpml_jobs.report.text.marks import MARK
from hpml_jobs.report.text.study_comparison import names_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "compare"
"""The name of its files."""

CELLS = 40
"""The most cells in a picture."""

DASHES = (0, (4, 3))

SLOWER, FASTER, UNDECIDED = style.RED, style.BLUE, style.MIDDLE_GREY

NO_DIFFERENCE = "no difference seen"
NOT_DECIDED = "not decided"
COLOURS = {
    "slower": SLOWER,
    "faster": FASTER,
    NO_DIFFERENCE: style.BLACK,
    NOT_DECIDED: UNDECIDED,
}
"""The colours of the verdicts."""

CAPTION = (
    "Change of the time from A ({old}) to B ({new}): ratio of times (Hodges-Lehmann) with "
    "its 95 % interval. Grey band: 2 %, below which no difference is called. Hollow: medians, too "
    "few runs to tell or a failed check. {mark} a check warns."
)


def picture_files(
    comparison: StudyComparison, answer: str, limit: float | None
) -> dict[str, bytes]:
    """Return compare.png and compare.svg; nothing without a shared cell."""
    with style.applied():
        picture = comparison_picture(comparison, answer, limit)
    return files_of(picture) if picture else {}


def comparison_picture(
    comparison: StudyComparison, answer: str, limit: float | None
) -> Picture | None:
    """Plot the change of every shared cell; None without one."""
    cells = [
        (_label(comparison, group, cell), cell)
        for group in comparison.groups
        for cell in group.measured
    ]
    if not cells:
        return None
    shown = cells[:CELLS]
    figure, (axis,) = style.panels(1, height=0.7 + 0.3 * len(shown))
    axis.axvspan(-100 * LEAST_GAP, 100 * LEAST_GAP, color=style.PALE, alpha=0.5, lw=0, zorder=0)
    axis.axvline(0, color=style.BLACK, lw=1)
    if limit is not None:
        axis.axvline(100 * limit, color=SLOWER, lw=1.2, ls=DASHES)
    for row, (_, cell) in enumerate(shown):
        _draw(axis, row, cell)
    axis.set_yticks(range(len(shown)), [label for label, _ in shown])
    axis.set_ylim(len(shown) - 0.4, -0.6)  # first cell at the top
    axis.grid(visible=False, axis="y")
    axis.set_xlabel("change of the time, %   (left: B is faster, right: B is slower)")
    colours = {_verdict(cell): COLOURS[_verdict(cell)] for _, cell in shown}
    ordered = {name: colour for name, colour in COLOURS.items() if name in colours}
    looks = {name: style.Look(colour, marker="o") for name, colour in ordered.items()}
    if limit is not None:
        looks[f"limit {percent_text(limit)}"] = style.Look(SLOWER, DASHES)
    style.line_legend(figure, looks)
    names = names_of(comparison)
    missing = [label for label, _ in cells[CELLS:]]
    caption = sentences(
        answer,
        CAPTION.format(old=names.old, new=names.new, mark=MARK),
        not_drawn(missing, "compare --json"),
    )
    return Picture(f"{names.new} against {names.old}", figure, answer, caption, NAME)


def _label(comparison: StudyComparison, group: ComparedGroup, cell: ComparedCell) -> str:
    label = cell_label(cell.place, group.new.device)
    mark = f"{MARK} " if cell.is_doubtful else ""
    workload = f"{group.new.work[0]}: " if len(comparison.groups) > 1 else ""
    return f"{mark}{workload}{label}"


def _verdict(cell: ComparedCell) -> str:
    match cell.decision:
        case Decision.FASTER | Decision.SLOWER as decision:
            return decision.value
        case Decision.SAME | Decision.BELOW_GAP:
            return NO_DIFFERENCE
        case _:
            return NOT_DECIDED


def _draw(axis: "Axes", row: int, cell: ComparedCell) -> None:
    """Draw a cell's change and its interval; hollow where nothing is decided."""
    estimate, interval = cell.ratio
    colour, change = COLOURS[_verdict(cell)], 100 * (estimate - 1)
    is_decided = _verdict(cell) != NOT_DECIDED
    if interval and is_decided:
        ends = [100 * (interval.low - 1), 100 * (interval.high - 1)]
        axis.plot(ends, [row, row], color=colour, lw=1.8, marker="|", ms=7)
    axis.plot(
        [change],
        [row],
        color=colour,
        marker="o",
        ms=6,
        mfc=colour if is_decided else "white",
        ls="",
    )
