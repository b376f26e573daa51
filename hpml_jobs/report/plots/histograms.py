"""Histograms of weights and activations, with the range that each bound of a scale covers."""

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING

from hpml_jobs.core.quantization import Bound, Spread
from hpml_jobs.report.plots import style
from hpml_jobs.report.plots.picture import Picture, listed, not_drawn, sentences
from hpml_jobs.report.report import Report
from hpml_jobs.report.tables.quantization import BOUNDS, Runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = 18
"""The most histograms in a picture: three networks of six layers."""

COLUMNS = 3

COLOURS = {
    Bound.RANGE: style.COLOURS[6],
    Bound.SIGMA: style.COLOURS[1],
    Bound.PERCENTILE: style.COLOURS[2],
}

CAPTION = (
    "{bins} bins{scale}; first run. Lines: ends of the range that each bound covers, if they lie "
    "within the values: least and most, mean -/+ 3 standard deviations, percentile of the "
    "absolute values."
)


def weights(report: Report) -> Picture | None:
    """Plot histograms of every layer's weights; None if nothing was quantized."""
    return _picture(report, "weights", "Weights", logarithmic=False)


def activations(report: Report) -> Picture | None:
    """Plot the input's and every layer's outputs on a log scale: most are 0 after ReLU."""
    return _picture(report, "activations", "Activations", logarithmic=True)


def _picture(report: Report, what: str, title: str, *, logarithmic: bool) -> Picture | None:
    spreads = [
        (runs, spread)
        for runs in report.quantized
        for spread in runs.first.spreads
        if spread.what == what
    ]
    if not spreads:
        return None
    shown = spreads[:PANELS]
    places = _places([runs.name for runs, _ in shown])
    figure, axes = style.panels(places[-1] + 1, columns=COLUMNS, height=1.9)
    for place, (runs, spread) in zip(places, shown, strict=True):
        axes[place].set_title(_title(report, runs, spread), loc="left")
        _histogram(axes[place], spread, logarithmic=logarithmic)
    for axis in style.left_ones(axes):
        axis.set_ylabel("values")
    for place in set(range(places[-1])) - set(places):
        axes[place].remove()
    style.legend(figure, {BOUNDS[bound]: colour for bound, colour in COLOURS.items()})
    scale = ", on a logarithmic scale" if logarithmic else ""
    missing = [_title(report, runs, spread) for runs, spread in spreads[PANELS:]]
    caption = CAPTION.format(bins=len(shown[0][1].counts), scale=scale)
    ranges = [f"{_title(report, runs, s)} {s.least:.3g} to {s.most:.3g}" for runs, s in shown]
    alt = f"Histograms of {what}. Least to most: {listed(ranges)}."
    return Picture(title, figure, alt, sentences(caption, not_drawn(missing, "spreads.csv")))


def _places(names: Sequence[str]) -> list[int]:
    """Return the panel of each histogram; each network begins a new row.

    >>> _places(["a", "a", "a", "a", "b", "b"])
    [0, 1, 2, 3, 6, 7]
    """
    places: list[int] = []
    for name, before in zip(names, [None, *names[:-1]], strict=True):
        number = len(places) and places[-1] + 1
        new_row = before not in (None, name)
        places.append(ceil(number / COLUMNS) * COLUMNS if new_row else number)
    return places


def _title(report: Report, runs: Runs, spread: Spread) -> str:
    return f"{runs.name}: {spread.layer}" if len(report.quantized) > 1 else spread.layer


def _histogram(axis: "Axes", spread: Spread, *, logarithmic: bool) -> None:
    width = (spread.most - spread.least) / len(spread.counts)
    edges = [spread.least + number * width for number in range(len(spread.counts) + 1)]
    axis.stairs(spread.counts, edges, fill=True, color=style.COLOURS[5])
    if logarithmic:
        style.by_powers(axis)
    for bound, ends in _ends(spread).items():
        for end in ends:
            axis.axvline(end, color=COLOURS[bound], lw=1.3)


def _ends(spread: Spread) -> dict[Bound, list[float]]:
    """Return the ends of each bound's range that lie within the values."""
    around = {
        Bound.RANGE: (spread.least, spread.most),
        Bound.SIGMA: (spread.mean - 3 * spread.sigma, spread.mean + 3 * spread.sigma),
        Bound.PERCENTILE: (-spread.percentile, spread.percentile),
    }
    return {
        bound: [end for end in ends if spread.least <= end <= spread.most]
        for bound, ends in around.items()
    }
