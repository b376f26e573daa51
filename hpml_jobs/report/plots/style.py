"""What all pictures share: colours for colour-blind readers, panels, captions, legends."""

import textwrap
from collections.abc import Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C8C8C"),
)
"""Okabe and Ito's palette for all kinds of colour vision, grey in place of yellow."""

PANELS = 6
"""The most panels in a picture."""

NAMED = 6
"""The most omitted items that are listed by name."""

GREY, PALE = "#555555", "#D9D9D9"

STYLE: Any = {
    "figure.dpi": 150,
    "figure.constrained_layout.use": True,
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "axes.labelcolor": GREY,
    "axes.edgecolor": GREY,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.7,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "lines.solid_capstyle": "round",
    "svg.hashsalt": "hpml_jobs",  # fixes the ids in an SVG: same picture, same bytes
}

TITLE = 11.5
"""Font size of a heading, in points."""

WIDE, NARROW = 10.0, 7.0
"""Width in inches of pictures with several columns of panels, and with one column."""


def panels(number: int, *, columns: int = 3, height: float = 2.8) -> "tuple[Figure, list[Axes]]":
    """Return a figure with `number` panels, `columns` per row, each `height` inches high."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - heavy

    across = min(number, columns)
    down = ceil(number / across)
    figure = Figure(figsize=(WIDE if across > 1 else NARROW, down * height + 1.1))
    grid = figure.subplots(down, across, squeeze=False)
    axes = [axis for row in grid for axis in row]
    for axis in axes[number:]:
        axis.remove()
    return figure, axes[:number]


def even(number: int, columns: int) -> int:
    """Return the number of panels per row that makes the rows equally full.

    >>> even(4, 3), even(5, 3), even(2, 3)
    (2, 3, 2)
    """
    return ceil(number / ceil(number / columns))


def left_ones(axes: "Sequence[Axes]") -> "list[Axes]":
    """Return the panels that are first in their rows."""
    return [axis for axis in axes if (place := axis.get_subplotspec()) and place.is_first_col()]


def caption(figure: "Figure", *parts: str) -> None:
    """Write the caption below the figure, in small type over the whole width."""
    width = round(figure.get_figwidth() * 16.5)
    lines = [line for part in parts if part for line in textwrap.wrap(part, width)]
    figure.supxlabel(
        "\n".join(lines), x=0.008, ha="left", fontsize=7.5, color=GREY, linespacing=1.35
    )


def legend(figure: "Figure", text: str, colours: Mapping[str, str]) -> None:
    """Write the heading, and one legend for all panels above them, where it covers no data."""
    from matplotlib.lines import Line2D  # noqa: PLC0415 - heavy

    handles = [Line2D([], [], color=colour, lw=2) for colour in colours.values()]
    longest = max(map(len, colours), default=1)
    across = max(1, min(len(colours), int(figure.get_figwidth() * 13 / (longest + 6))))
    figure.legend(
        handles,
        list(colours),
        loc="outside upper left",
        ncols=across,
        handlelength=1.6,
        title=text,
        title_fontproperties={"size": TITLE, "weight": "bold"},
        alignment="left",
        borderaxespad=0.3,
    )


def by_ratio(axis: "Axes") -> None:
    """Set a logarithmic y axis with plain numbers at 1, 2 and 5."""
    from matplotlib import ticker  # noqa: PLC0415 - heavy

    axis.set_yscale("log")
    axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_locator(ticker.NullLocator())


def not_drawn(what: Sequence[str], where: str) -> str:
    """Return a sentence on what was omitted and which file has it; it names the first few.

    >>> not_drawn(["ddp 2-GPU"], "curves.csv")
    'Not drawn, see curves.csv: ddp 2-GPU.'
    """
    if not what:
        return ""
    more = f" and {len(what) - NAMED} more" if len(what) > NAMED else ""
    return f"Not drawn, see {where}: {', '.join(what[:NAMED])}{more}."
