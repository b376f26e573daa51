"""Picture of the time of an epoch against its cost, with the cells that nothing beats in both."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from hpml_jobs.core.statistics import interval
from hpml_jobs.core.text import counted
from hpml_jobs.report.merge.choice import Candidate, Choice, Exclusion
from hpml_jobs.report.merge.rows import setup_order
from hpml_jobs.report.plots import series, style
from hpml_jobs.report.plots.picture import Picture, listed, not_drawn, sentences
from hpml_jobs.report.plots.series import Keys, Point, Series
from hpml_jobs.report.report import Report, ReportGroup
from hpml_jobs.report.text import captions
from hpml_jobs.report.text import choice as words
from hpml_jobs.report.text.captions import cell_label
from hpml_jobs.report.text.numbers import seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CAPTION = (
    "E1, the longest of all ranks, medians over runs; bars: intervals of the median, none with a "
    "single run. Cost: charged {units} x seconds. Diagonals: equal numbers of {units}. Grey line: "
    "the Pareto front, cells that no other beats in both time and cost; cells with a failed check "
    "are not on it."
)


TICKS = (1, 1.5, 2, 3, 5, 7)
"""Numbers at ticks: times and costs of one study are often within a factor of 10."""


class Panel(NamedTuple):
    """A group with its choice."""

    group: ReportGroup
    choice: Choice


def pareto(report: Report) -> Picture | None:
    """Plot time against cost of every cell; None with fewer than two cells in every group."""
    panels = [
        Panel(group, group.choice)
        for group in report.groups
        if group.choice and len(group.choice.candidates) > 1
    ]
    if not panels:
        return None
    shown, keys = panels[: style.PANELS], series.keys(report)
    figure, axes = style.panels(len(shown), columns=style.even(len(shown), 3), height=3.4)
    for axis, panel in zip(axes, shown, strict=True):
        axis.set_title(report.name(panel.group), loc="left")
        _draw(axis, panel, keys)
    device = shown[0].group.source.device
    works = [captions.work_text(panel.group.source.work) for panel in shown]
    left = style.left_ones(axes)
    for axis, work in zip(axes, works, strict=True):
        if axis in left:
            axis.set_ylabel(f"{words.cost_unit(device)} per {work}")
    candidates = [c for panel in shown for c in panel.choice.candidates]
    lines = [_series(c) for c in sorted(candidates, key=lambda c: setup_order(c.row.setup)[2:])]
    style.entries(figure, series.legend(lines, keys, "batch"))
    missing = [report.name(panel.group) for panel in panels[len(shown) :]]
    caption = CAPTION.format(units=captions.units(device))
    caption = sentences(caption, not_drawn(missing, "choice.csv"))
    return Picture(f"Time and cost of {_of_what(shown)}", figure, _alt(report, shown), caption)


def _of_what(panels: Sequence[Panel]) -> str:
    """Return what times and costs are of: `an epoch`, or imported work without one."""
    works = {panel.group.source.work for panel in panels}
    return "equal work" if len(works) > 1 else captions.an_epoch(works.pop())


def front(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the cells that no other beats in both time and cost, the fastest first."""
    sound = [c for c in candidates if c.exclusion is not Exclusion.FAILED_CHECK]
    kept: list[Candidate] = []
    for candidate in sorted(sound, key=lambda c: (c.epoch_s, c.gpu_s)):
        if not kept or candidate.gpu_s < kept[-1].gpu_s:
            kept.append(candidate)
    return kept


def _series(candidate: Candidate) -> Series:
    """Return a cell as a line of one point, for the legend and its look."""
    row = candidate.row
    point = Point(row.gpus, row.nodes, candidate.gpu_s, None, candidate.doubtful)
    return series.make(row.strategy.value, row.treatment, row.batch_per_gpu, [point])


def _draw(axis: "Axes", panel: Panel, keys: Keys) -> None:
    candidates = panel.choice.candidates
    best = front(candidates)
    axis.plot(
        [c.epoch_s for c in best],
        [c.gpu_s for c in best],
        color=style.PALE,
        lw=5,
        solid_capstyle="round",
        zorder=1,
    )
    places: dict[style.Look, list[Candidate]] = {}
    for candidate in candidates:
        look = keys.look(_series(candidate))._replace(dashes="none")
        places.setdefault(look, []).append(candidate)
    for look, members in places.items():
        points = [(c.epoch_s, c.gpu_s) for c in members]
        axis.plot(
            *zip(*points, strict=True), color=look.colour, ls="none", marker=look.marker, ms=5
        )
        hollow = [(c.epoch_s, c.gpu_s) for c in members if c.doubtful]
        if hollow:
            style.hollow(axis, hollow, look.colour, look.marker)
    _intervals(axis, candidates)
    axis.set_xlabel(f"seconds per {captions.work_text(panel.group.source.work)}")
    style.by_ratio(axis, TICKS)
    style.by_ratio(axis, TICKS, of_x=True)
    axis.margins(0.16, 0.16)
    _diagonals(axis, panel)
    _names(axis, panel)


def _intervals(axis: "Axes", candidates: Sequence[Candidate]) -> None:
    """Draw intervals of the median along the diagonals: the cost grows with the time."""
    from matplotlib.collections import LineCollection  # noqa: PLC0415 - heavy

    bars, colours = [], []
    for candidate in candidates:
        ends = interval(candidate.epochs_s)
        if ends and ends.high > ends.low > 0:
            bars.append([(s, candidate.charged_gpus * s) for s in (ends.low, ends.high)])
            colours.append(style.strategy_colour(candidate.row.strategy.value))
    axis.add_collection(LineCollection(bars, colors=colours, linewidths=1))


def _diagonals(axis: "Axes", panel: Panel) -> None:
    """Draw a line for every number of charged GPUs, with the number at its upper end."""
    axis.autoscale_view()
    (left, right), (bottom, top) = axis.get_xlim(), axis.get_ylim()
    sizes = sorted({c.charged_gpus for c in panel.choice.candidates})
    device = panel.group.source.device
    for size in sizes:
        end = min(right, top / size)
        axis.plot([left, right], [size * left, size * right], color=style.GRID, lw=0.9, zorder=0)
        axis.text(
            end,
            end * size,
            counted(size, captions.unit(device), captions.units(device)),
            size=7,
            color=style.GREY,
            ha="right",
            va="top" if end < right else "bottom",
        )
    axis.set_xlim(left, right)
    axis.set_ylim(bottom, top)


def _names(axis: "Axes", panel: Panel) -> None:
    """Mark the cell to ask for with a ring, and name it, the fastest and the cheapest."""
    choice, device = panel.choice, panel.group.source.device
    roles: dict[int, list[str]] = {}
    named = {
        "ask for": choice.ask.candidate if choice.ask else None,
        "fastest": choice.fastest.candidate if choice.fastest else None,
        "cheapest": choice.cheapest,
    }
    for role, candidate in named.items():
        if candidate is not None:
            roles.setdefault(choice.candidates.index(candidate), []).append(role)
    (left, right), (bottom, top) = axis.get_xlim(), axis.get_ylim()
    for number, of_cell in roles.items():
        candidate = choice.candidates[number]
        place = (candidate.epoch_s, candidate.gpu_s)
        is_asked = "ask for" in of_cell
        if is_asked:
            axis.plot(*place, ls="none", marker="o", ms=12, mfc="none", mec=style.TEXT, mew=1.4)
        is_left = candidate.epoch_s < (left * right) ** 0.5
        is_low = candidate.gpu_s < (bottom * top) ** 0.5
        axis.annotate(
            f"{', '.join(of_cell)}:\n{cell_label(candidate.row.place, device)}",
            place,
            xytext=(9 if is_left else -9, 6 if is_low else -6),
            va="bottom" if is_low else "top",
            textcoords="offset points",
            ha="left" if is_left else "right",
            size=7.5,
            weight="bold" if is_asked else "normal",
            bbox={"fc": style.PAPER, "lw": 0, "alpha": 0.75, "pad": 1},
        )


def _alt(report: Report, panels: Sequence[Panel]) -> str:
    texts = []
    for panel in panels:
        device, choice = panel.group.source.device, panel.choice
        name = f"{report.name(panel.group)}: " if report.several else ""
        best = [
            f"{cell_label(c.row.place, device)} {seconds(c.epoch_s)} s for {words.cost(c.gpu_s)} "
            f"{words.cost_unit(device)}"
            for c in front(choice.candidates)
        ]
        if choice.ask:
            asked = f"ask for {cell_label(choice.ask.candidate.row.place, device)}"
        else:
            asked = f"no cell of {len(choice.candidates)} can be recommended"
        texts.append(f"{name}{asked}; on the Pareto front {listed(best) or 'none'}")
    return f"Time against cost of {_of_what(panels)}. {listed(texts, '; ')}."
