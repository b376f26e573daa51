"""Picture of the time of an epoch against its cost, with the cells that nothing beats in both."""

from collections.abc import Sequence
from functools import partial

from hpml_jobs.core.place import setup_order
from hpml_jobs.core.statistics import interval
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.text import counted
from hpml_jobs.report.choose.rules import Candidate, Choice, Exclusion
from hpml_jobs.report.choose.words import asked
from hpml_jobs.report.frame import captions, series, style
from hpml_jobs.report.frame.numbers import cost, seconds
from hpml_jobs.report.frame.picture import (
    Axes,
    Entry,
    Panel,
    Picture,
    cut,
    logarithmic,
    named,
    panels,
)
from hpml_jobs.report.frame.series import Point, Series
from hpml_jobs.report.report import Report
from hpml_jobs.results.groups import ConditionGroup

CAPTION = (
    "Timed epoch, the longest of all ranks, medians over runs; bars: intervals of the median, "
    "none with a single run. Cost: charged {units} x seconds. Diagonals: equal numbers of {units}. "
    "Grey line: the Pareto front, cells that no other beats in both time and cost; cells with a "
    "failed check are not on it."
)

TICKS = (1, 1.5, 2, 3, 5, 7)
"""Numbers at ticks: times and costs of one study are often within a factor of 10."""


SHORT = 4
"""Up to this factor between its ends an axis may have fewer than three of `TICKS`."""


def of_report(report: Report) -> Picture | None:
    """Plot time against cost of every cell; None with fewer than two cells in every group."""
    pareto_panels, missing = cut(
        [
            Panel(group.source.name, (group.source, group.choice))
            for group in report.groups
            if group.choice and group.choice.has_rivals
        ]
    )
    if not pareto_panels:
        return None
    keys = series.keys(report.sources)
    candidates = [c for panel in pareto_panels for c in panel.data[1].candidates]
    candidates.sort(key=lambda c: setup_order(c.row.setup)[2:])
    device = pareto_panels[0].data[0].device
    works = {group.work for _, (group, _) in pareto_panels}
    of_what = "equal work" if len(works) > 1 else captions.an_epoch(works.pop())
    return panels(
        f"Time and cost of {of_what}",
        pareto_panels,
        partial(_draw, keys=keys),
        alt=f"Time against cost of {of_what}: ",
        caption=[CAPTION.format(units=captions.units(device))],
        legend=_legend([_series(c) for c in candidates], keys),
        missing=missing,
        file="choice.csv",
        height=3.4,
    )


def _draw(
    axis: Axes, panel: Panel[tuple[ConditionGroup, Choice]], *, keys: series.Keys
) -> list[str]:
    """Draw the cells of a group, the front and the diagonals; return the answer in words."""
    group, choice = panel.data
    device, work = group.device, captions.work_text(group.work)
    unit = captions.cost_unit(device)
    best = front(choice.candidates)
    times_s = [candidate.epoch_s for candidate in best]
    costs = [candidate.gpu_s for candidate in best]
    axis.plot(times_s, costs, color=style.PALE, lw=5, zorder=1)
    _draw_cells(axis, choice.candidates, keys)
    logarithmic(axis, "x", f"seconds per {work}", at=TICKS)
    logarithmic(axis, "y", f"{unit} per {work}", at=TICKS)
    axis.margins(0.16, 0.16)
    _draw_diagonals(axis, choice.candidates, device)
    _add_ticks(axis)
    _name_cells(axis, choice)
    on_front = [
        f"{c.label} {seconds(c.epoch_s)} s for {cost(c.gpu_s)} {unit}" for c in best
    ]
    text = f"on the Pareto front: {captions.first_few(on_front) or 'none'}"
    return [named(group, f"{_answer(choice)}; {text}")]


def _answer(choice: Choice) -> str:
    if choice.undecided:
        return f"not decided: {' or '.join(cell.label for cell in asked(choice))}"
    if choice.ask:
        return f"use {choice.ask.candidate.label}"
    return f"no cell of {len(choice.candidates)} can be recommended"


def _add_ticks(axis: Axes) -> None:
    """Place ticks at even round steps on an axis that is too short for those of `TICKS`."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - heavy

    for numbers in (axis.xaxis, axis.yaxis):
        least, most = numbers.get_view_interval()
        if most < SHORT * least:
            numbers.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))


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


def _legend(lines: Sequence[Series], keys: series.Keys) -> dict[str, Entry]:
    """Return the entries of points: colours that are of a strategy, batches, doubtful numbers."""
    entries = series.legend(lines, keys, "batch")
    names = {line.name for line in lines}
    of_points = {name: look for name, look in entries.items() if name not in names}
    colours = {line.strategy: keys.look(line).colour for line in lines}
    if keys.colours:  # those of other strategies are of their batches
        colours = {name: colours[name] for name in colours if name == Strategy.SINGLE}
    patches = {name: {"color": colour, "lw": 6} for name, colour in colours.items()}
    return {**patches, **of_points}


def _draw_cells(axis: Axes, candidates: Sequence[Candidate], keys: series.Keys) -> None:
    """Draw cells, and intervals of the median along the diagonals: cost grows with the time."""
    for c in candidates:
        look = keys.look(_series(c))._replace(dashes="none")
        axis.plot(c.epoch_s, c.gpu_s, **look.line, ms=5)
        if c.doubtful:
            series.hollow(axis, [(c.epoch_s, c.gpu_s)], look)
        ends = interval(c.epochs_s)
        if ends and ends.high > ends.low > 0:
            times_s = [ends.low, ends.high]
            costs = [c.charged_gpus * end for end in times_s]
            colour = style.strategy_colour(c.row.strategy.value)
            axis.plot(times_s, costs, color=colour, lw=1, zorder=1)


def _draw_diagonals(
    axis: Axes, candidates: Sequence[Candidate], device: Device
) -> None:
    """Draw a line for every number of charged GPUs, with the number at its upper end."""
    axis.autoscale_view()
    left, right = axis.get_xlim()
    bottom, top = axis.get_ylim()
    for size in sorted({c.charged_gpus for c in candidates}):
        end = min(right, top / size)
        times_s, costs = [left, right], [size * left, size * right]
        axis.plot(times_s, costs, color=style.GRID, lw=0.9, zorder=0)
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


def _name_cells(axis: Axes, choice: Choice) -> None:
    """Mark the cell to ask for with a ring, and name it, the fastest and the cheapest."""
    ask_word = "not decided" if choice.undecided else "use this"
    left, right = axis.get_xlim()
    bottom, top = axis.get_ylim()
    for number, of_cell in _roles(choice, ask_word).items():
        candidate, weight = choice.candidates[number], "normal"
        place = (candidate.epoch_s, candidate.gpu_s)
        if ask_word in of_cell:
            weight = "bold"
            axis.plot(
                *place,
                ls="none",
                marker="o",
                ms=12,
                mfc="none",
                mec=style.TEXT,
                mew=1.4,
            )
        x, ha, y, va = -9, "right", -6, "top"
        if candidate.epoch_s < (left * right) ** 0.5:
            x, ha = 9, "left"
        if candidate.gpu_s < (bottom * top) ** 0.5:
            y, va = 6, "bottom"
        axis.annotate(
            f"{', '.join(of_cell)}:\n{candidate.label}",
            place,
            xytext=(x, y),
            va=va,
            textcoords="offset points",
            ha=ha,
            size=7.5,
            weight=weight,
            bbox={"fc": style.PAPER, "lw": 0, "alpha": 0.75, "pad": 1},
        )


def _roles(choice: Choice, ask_word: str) -> dict[int, list[str]]:
    """Return what is said of cells, by their numbers."""
    named_cells = [(ask_word, candidate) for candidate in asked(choice)]
    if choice.fastest:
        named_cells.append(("fastest", choice.fastest.candidate))
    if choice.cheapest:
        named_cells.append(("cheapest", choice.cheapest))
    roles: dict[int, list[str]] = {}
    for role, candidate in named_cells:
        roles.setdefault(choice.candidates.index(candidate), []).append(role)
    return roles
