"""Pictures of quantization: the accuracy after each step, and histograms with bounds of scales."""

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from hpml_jobs.core.quantization import Bound, Spread
from hpml_jobs.report.frame import style
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.learning import Mean
from hpml_jobs.report.frame.picture import (
    Axes,
    Panel,
    Picture,
    cut,
    logarithmic,
    not_drawn,
    panels,
    rows,
)
from hpml_jobs.report.quantization.table import BOUNDS, quantized, results

# ---- accuracy by step ----

ACCURACY = (
    "Accuracy on the whole test set, mean over seeds; bars: one sample standard deviation over "
    "seeds, none with a single seed. Dashed: fp32. In brackets: the bound of a scale, and whether"
    " it is per layer or per output channel."
)


class Step(NamedTuple):
    """A step of quantization, and the accuracies after it, each with the number of its network."""

    label: str
    accuracies: list[tuple[int, Mean]]


def quantization(groups: Sequence[ConditionGroup]) -> Picture | None:
    """Plot the accuracy by step, a colour per network; None if none was quantized."""
    networks = quantized(groups)
    shown = networks[: len(style.COLOURS)]
    steps: dict[str, Step] = {}
    for network, runs in enumerate(shown):
        for result in results(runs):
            what = result.what.replace(", int32 bias", "")  # the label is the same for all networks
            label = f"{what} ({result.bound}, {result.scales})" if result.bound else what
            step = steps.setdefault(label, Step(label, []))
            if mean := result.accuracy:
                step.accuracies.append((network, mean))

    def draw(axis: Axes, steps: Sequence[Step]) -> list[str]:
        axis.grid(visible=True, axis="y")
        texts = []
        for network, (runs, colour) in enumerate(zip(shown, style.COLOURS, strict=False)):
            aside = 0.16 * (network - (len(shown) - 1) / 2)
            points = [
                (100 * mean.mean, at, 100 * (mean.deviation or 0.0))
                for at, step in enumerate(steps)
                for number, mean in step.accuracies
                if number == network
            ]
            values, places, deviations = zip(*points, strict=True)
            axis.errorbar(
                values,
                [at + aside for at in places],
                xerr=deviations,
                color=colour,
                fmt="o",
                ms=5,
                elinewidth=1.2,
                capsize=2.5,
            )
            axis.axvline(values[0], color=colour, lw=1, ls=(0, (4, 3)), alpha=0.6, zorder=0)
            least, worst, _ = min(points)
            text = f"{runs.name} {values[0]:.2f} %, least {least:.2f} % with {steps[worst].label}"
            texts.append(text)
        return texts

    return rows(
        "Accuracy by step of quantization",
        [*steps.values()],
        draw,
        x="test accuracy, %",
        alt="Test accuracy by step of quantization: ",
        caption=[
            ACCURACY,
            not_drawn([runs.name for runs in networks[len(shown) :]], "quantization.csv"),
        ],
        legend=dict(zip((runs.name for runs in shown), style.COLOURS, strict=False)),
        between=", ",
    )


# ---- histograms ----

HISTOGRAMS = (
    "{bins} bins{scale}; first run. Lines: ends of the range that each bound covers, if they lie "
    "within the values: least and most, mean -/+ 3 standard deviations, percentile of the "
    "absolute values."
)
PANELS = 18
"""The most histograms in a picture: three networks of six layers."""

COLOURS = {
    Bound.RANGE: style.BLACK,
    Bound.SIGMA: style.RED,
    Bound.PERCENTILE: style.GREEN,
}


def weights(groups: Sequence[ConditionGroup]) -> Picture | None:
    """Plot histograms of every layer's weights; None if nothing was quantized."""
    return _histograms(groups, "weights", is_log=False)


def activations(groups: Sequence[ConditionGroup]) -> Picture | None:
    """Plot the input's and every layer's outputs on a log scale: most are 0 after ReLU."""
    return _histograms(groups, "activations", is_log=True)


def _histograms(groups: Sequence[ConditionGroup], what: str, *, is_log: bool) -> Picture | None:
    """Return a picture with a panel for each layer; each network begins a new row."""
    networks = quantized(groups)
    every = [
        Panel(
            f"{runs.name}: {spread.layer}" if len(networks) > 1 else spread.layer,
            (runs.name, spread),
        )
        for runs in networks
        for spread in runs.first.spreads
        if spread.what == what
    ]
    shown, missing = cut(every, PANELS)
    if not shown:
        return None
    by_network: dict[str, list[Panel[Spread] | None]] = {}
    for title, (name, spread) in shown:
        by_network.setdefault(name, []).append(Panel(title, spread))
    most = max(map(len, by_network.values()))
    columns = ceil(most / ceil(most / 3))  # at most 3, in rows that are equally full
    places = [
        panel
        for of_network in by_network.values()
        for panel in (*of_network, *[None] * (-len(of_network) % columns))
    ]

    def draw(axis: Axes, panel: Panel[Spread]) -> list[str]:
        title, spread = panel
        width = (spread.most - spread.least) / len(spread.counts)
        edges = [spread.least + number * width for number in range(len(spread.counts) + 1)]
        axis.stairs(spread.counts, edges, fill=True, color=style.SKY)
        axis.set_ylabel("values")
        if is_log:
            logarithmic(axis, "y", "values", at=(1,))
        for bound, ends in (
            (Bound.RANGE, (spread.least, spread.most)),
            (Bound.SIGMA, (spread.mean - 3 * spread.sigma, spread.mean + 3 * spread.sigma)),
            (Bound.PERCENTILE, (-spread.percentile, spread.percentile)),
        ):
            for end in ends:
                if spread.least <= end <= spread.most:
                    axis.axvline(end, color=COLOURS[bound], lw=1.3)
        return [f"{title} {spread.least:.3g} to {spread.most:.3g}"]

    bins, scale = len(shown[0].data[1].counts), ", on a logarithmic scale" if is_log else ""
    return panels(
        what.capitalize(),
        places,
        draw,
        alt=f"Histograms of {what}. Least to most: ",
        caption=[HISTOGRAMS.format(bins=bins, scale=scale)],
        legend={BOUNDS[bound]: colour for bound, colour in COLOURS.items()},
        missing=missing,
        file="spreads.csv",
        columns=columns,
        height=1.9,
        between=", ",
    )
