"""Picture of the loss by iteration: a panel for each batch, a line for each row."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import ceil
from typing import Any, NamedTuple

from hpml_jobs.core.place import Setup, setup_order
from hpml_jobs.report.frame import curves, style
from hpml_jobs.report.frame.captions import full_label
from hpml_jobs.report.frame.curves import Curve, NoCurveError
from hpml_jobs.report.frame.picture import (
    PANELS,
    Axes,
    Entry,
    Panel,
    Picture,
    batch_title,
    logarithmic,
    panels,
)
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row

POINTS, SMOOTH_POINTS = 2_000, 200
"""The most points of a thin and of a thick line: more are invisible, but enlarge the SVG."""

WIDE_RANGE = 20
"""If the losses of a panel fall below 1/20, all panels have a logarithmic scale."""

CAPTION = (
    "Thin: {thin}; thick: mean over a fortieth of the run. All epochs of training in order; "
    "the first run of each cell. Loss: mean over ranks."
)


class LossRun(NamedTuple):
    """The values of a run by iteration, and its thick line: iterations and their values."""

    label: str
    values: Any
    at: list[int]
    smooth: list[float]


LINES = 8
"""The most lines in a panel whose legend names each of them."""


def loss(groups: Sequence[ConditionGroup]) -> Picture | None:
    """Plot the training loss by iteration; None if no run has curves."""
    places, looks, missing = _choose(groups)
    loss_panels = [
        Panel(title, [_run(label, curve.loss) for label, curve in runs.items()])
        for title, runs in places
    ]
    spans = [_span(panel) for panel in loss_panels]
    is_wide = any(0 < least < most / WIDE_RANGE for least, most in spans)
    runs = [run for panel in loss_panels for run in panel.data]
    labels = {run.label for run in runs}
    legend: dict[str, Entry] = {
        label: {"color": look.colour, "ls": look.dashes, "ms": 4}
        for label, look in looks.items()
        if label in labels
    }
    return panels(
        "Loss by iteration",
        loss_panels,
        partial(_draw, looks=looks, is_wide=is_wide),
        alt="Training loss by iteration, mean over the last fortieth: ",
        caption=[CAPTION.format(thin=_thin(runs))],
        legend=legend,
        missing=missing,
        file="curves.csv",
    )


def _draw(
    axis: Axes,
    panel: Panel[list[LossRun]],
    *,
    looks: Mapping[str, style.Look],
    is_wide: bool,
) -> list[str]:
    """Draw the runs of a batch; return the loss at the end of each in words."""
    texts = []
    axis.set(xlabel="iteration", ylabel="training loss")
    for label, values, at, smooth in panel.data:
        look, every = looks[label], _every(values)
        thin = range(1, len(values) + 1, every)
        axis.plot(thin, values[::every], color=look.colour, lw=0.5, alpha=0.3)
        axis.plot(at, smooth, color=look.colour, ls=look.dashes, lw=1.7)
        last = values[-max(1, len(values) // 40) :]
        texts.append(f"{panel.title}, {label}: {last.mean():.3g}")
    least, most = _span(panel)
    if least > 0 and is_wide:
        logarithmic(axis, "y", "training loss")
        axis.set_ylim(bottom=max(axis.get_ylim()[0], least / 5))
    elif axis.get_ylim()[1] > 2 * most > 0:  # high peaks of thin lines are clipped
        axis.set_ylim(top=1.3 * most)
    return texts


class _Place(NamedTuple):
    """A row with curves: the title of its panel, and its label there."""

    title: str
    label: str
    group: ConditionGroup
    row: Row


def _choose(
    groups: Sequence[ConditionGroup],
) -> tuple[list[Panel[dict[str, Curve]]], dict[str, style.Look], list[str]]:
    """Return the runs by label that fit into panels, looks by label, and what does not fit."""
    places = list(_places(groups))
    setups = {place.label: place.row.setup for place in places}
    kept = _first_labels(setups)
    shown_places = [place for place in places if place.label in kept]
    titles = list(dict.fromkeys(place.title for place in shown_places))
    panels: dict[str, dict[str, Curve]] = {}
    for title, label, group, row in shown_places:
        curve = _curve(group, row)
        if curve is not None and title in titles[:PANELS]:
            panels.setdefault(title, {})[label] = curve
    looks = _looks({label: setups[label].strategy.value for label in kept})
    omitted = [label for label in setups if label not in kept]
    omitted += titles[PANELS:]
    return [Panel(*panel) for panel in panels.items()], looks, omitted


def _places(groups: Sequence[ConditionGroup]) -> Iterator[_Place]:
    """Yield the rows of which a run has curves."""
    for group in groups:
        for row in sorted(group.rows, key=lambda row: row.batch_per_gpu):
            if any(map(curves.has_curve, group.runs(row))):
                title = batch_title(group, row.batch_per_gpu)
                label = full_label(row.setup, group.device)
                yield _Place(title, label, group, row)


def _first_labels(setups: Mapping[str, Setup]) -> list[str]:
    """Return the labels that are drawn: baselines, then those with the most GPUs."""
    first = sorted(
        sorted(setups),
        key=lambda label: (not setups[label].is_baseline, -setups[label].gpus),
    )
    return sorted(first[:LINES], key=lambda label: setup_order(setups[label]))


def _looks(strategies: Mapping[str, str]) -> dict[str, style.Look]:
    """Return a look for each line from its strategy, by label; lines of one strategy differ.

    >>> [look.marker for look in _looks({"ddp 2-GPU": "ddp", "ddp 4-GPU": "ddp"}).values()]
    ['o', 's']
    """
    numbers: dict[str, int] = {}
    result = {}
    for label, strategy in strategies.items():
        number = numbers[strategy] = numbers.get(strategy, -1) + 1
        dashes = style.DASHES[number % len(style.DASHES)]
        marker = style.MARKERS[number % len(style.MARKERS)]
        result[label] = style.Look(style.strategy_colour(strategy), dashes, marker)
    return result


def _curve(group: ConditionGroup, row: Row) -> Curve | None:
    """Return the curve of the row's first run that has one."""
    for result in group.runs(row):
        try:
            return curves.read(result)
        except NoCurveError:  # the table of replicas has it in its notes
            continue
    return None


def _run(label: str, values: Any) -> LossRun:
    """Return a run with its moving mean over a fortieth of its iterations."""
    half = max(1, len(values) // 80)
    iterations, means = [], []
    for index in range(0, len(values), ceil(len(values) / SMOOTH_POINTS)):
        near = values[max(0, index - half) : index + half + 1]
        iterations.append(index + 1)
        means.append(float(near.mean()))
    return LossRun(label, values, iterations, means)


def _span(panel: Panel[list[LossRun]]) -> tuple[float, float]:
    """Return the least and the greatest value of a panel's thick lines."""
    values = [value for run in panel.data for value in run.smooth]
    return min(values), max(values)


def _every(values: Any) -> int:
    """Return k if every k-th iteration is drawn; 1 if all are."""
    return ceil(len(values) / POINTS)


def _thin(runs: Sequence[LossRun]) -> str:
    """Return in words which iterations the thin lines show."""
    steps = sorted({_every(run.values) for run in runs} - {1})
    if not steps:
        return "every iteration"
    ends = dict.fromkeys((steps[0], steps[-1]))
    in_one = " to ".join(map(str, ends))
    return f"every iteration, or one in {in_one} of runs with more than {POINTS:,}"
