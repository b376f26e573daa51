"""Picture of the loss by iteration: a panel for each batch, a line for each row."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from math import ceil
from typing import Any

from hpml_jobs.report.frame import curves, style
from hpml_jobs.report.frame.captions import full_label
from hpml_jobs.report.frame.curves import NoCurveError
from hpml_jobs.report.frame.picture import (
    Axes,
    Entry,
    Panel,
    Picture,
    batch_title,
    cut,
    panels,
)
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row

POINTS = 2_000
"""The most points of a thin line: more are invisible, but enlarge the SVG."""

LINES = 8
"""The most lines in a panel: the legend names each of them."""

CAPTION = (
    "Thin: iterations, at most 2,000 of them; thick: mean over a fortieth of the run. All epochs "
    "of training in order; the first run of each cell. Loss: mean over ranks."
)


def loss(groups: Sequence[ConditionGroup]) -> Picture | None:
    """Plot the training loss by iteration; None if no run has curves."""
    setups = {}
    losses: dict[str, dict[str, Any]] = {}
    for group in groups:
        for row in sorted(group.timed, key=lambda row: row.batch_per_gpu):
            values = _loss(row)
            if values is not None:
                label = full_label(row.setup, group.device)
                setups[label] = row.setup
                title = batch_title(group, row.batch_per_gpu)
                losses.setdefault(title, {})[label] = values
    # baselines, then those with the most GPUs
    labels = sorted(
        sorted(setups),
        key=lambda label: (not setups[label].is_baseline, -setups[label].gpus),
    )
    drawn = sorted(labels[:LINES], key=lambda label: setups[label].order)
    looks = _looks({label: setups[label].strategy.value for label in drawn})
    loss_panels, missing = cut([Panel(*panel) for panel in losses.items()])
    legend: dict[str, Entry] = {
        label: {"color": look.colour, "ls": look.dashes}
        for label, look in looks.items()
    }
    return panels(
        "Loss by iteration",
        loss_panels,
        partial(_draw, looks=looks),
        alt="Training loss by iteration, mean over the last fortieth: ",
        caption=[CAPTION],
        legend=legend,
        missing=labels[LINES:] + missing,
        file="curves.csv",
    )


def _loss(row: Row) -> Any:
    """Return the losses of the row's first run that has curves."""
    for result in filter(curves.has_curve, row.measured):
        try:
            return curves.read(result).loss
        except NoCurveError:  # the table of replicas has it in its notes
            continue
    return None


def _looks(strategies: Mapping[str, str]) -> dict[str, style.Look]:
    """Return a look for each line from its strategy, by label; lines of one strategy differ."""
    numbers = Counter[str]()
    looks = {}
    for label, strategy in strategies.items():
        dashes = style.DASHES[numbers[strategy] % len(style.DASHES)]
        looks[label] = style.Look(style.strategy_colour(strategy), dashes)
        numbers[strategy] += 1
    return looks


def _draw(
    axis: Axes, panel: Panel[dict[str, Any]], *, looks: Mapping[str, style.Look]
) -> list[str]:
    """Draw the runs of a batch; return the loss at the end of each in words."""
    import numpy as np  # noqa: PLC0415 - heavy

    texts = []
    most = 0.0
    for label, look in looks.items():
        values = panel.data.get(label)
        if values is None:
            continue
        every = ceil(len(values) / POINTS)
        fortieth = max(1, len(values) // 40)
        smooth = np.convolve(values, np.full(fortieth, 1 / fortieth), mode="valid")
        at = np.arange(len(smooth)) + (fortieth + 1) / 2
        few = ceil(len(smooth) / 200)
        thin = range(1, len(values) + 1, every)
        axis.plot(thin, values[::every], color=look.colour, lw=0.5, alpha=0.3)
        axis.plot(at[::few], smooth[::few], color=look.colour, ls=look.dashes, lw=1.7)
        most = max(most, float(smooth.max()))
        texts.append(f"{panel.title}, {label}: {smooth[-1]:.3g}")
    axis.set(xlabel="iteration", ylabel="training loss")
    if axis.get_ylim()[1] > 2 * most > 0:  # high peaks of thin lines are clipped
        axis.set_ylim(top=1.3 * most)
    return texts
