"""What all pictures share: colours for colour-blind readers, panels, captions, legends."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from hpml_jobs.errors import HpmlError

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend


class Colour(NamedTuple):
    """A colour of pictures: its CSS variable, and its values in a light and in a dark theme."""

    variable: str
    light: str
    dark: str


DARK = "#14171A"
"""The background that the dark values are made for."""

PALETTE = (
    Colour("--plot-blue", "#0072B2", "#4AA8E0"),
    Colour("--plot-red", "#D55E00", "#F0803C"),
    Colour("--plot-green", "#009E73", "#2FC598"),
    Colour("--plot-purple", "#CC79A7", "#E29BC3"),
    Colour("--plot-orange", "#B87900", "#F2B632"),
    Colour("--plot-sky", "#3E97D1", "#8FD0F5"),
    Colour("--plot-black", "#111111", "#F0F0F0"),
    Colour("--plot-grey", "#8C8C8C", "#9AA0A8"),
    Colour("--plot-wine", "#882255", "#C9558A"),
)
"""Okabe and Ito's palette for all kinds of colour vision, grey in place of yellow, and Tol's wine.

Orange and sky blue are darker than theirs: every colour has a contrast of 3:1 or more.
"""

PLAIN = (
    Colour("--plot-text", "#222222", "#E4E7EB"),
    Colour("--plot-ink", "#555555", "#B4BAC2"),
    Colour("--plot-pale", "#D9D9D9", "#7D838B"),
    Colour("--plot-grid", "#E6E6E6", "#30353B"),
    Colour("--plot-on-strong", "#FAFAFA", "#141414"),
    Colour("--plot-on-weak", "#202020", "#121212"),
    Colour("--plot-paper", "#FFFFFF", DARK),
)
"""Headings; axes and captions; idle time; grid lines; numbers on strong and on weak colours; paper.
"""

VARIABLES = (*PALETTE, *PLAIN)
"""Every colour that a picture is drawn in, for the style sheet of a page with pictures."""

COLOURS = tuple(colour.light for colour in PALETTE)
BLUE, RED, GREEN, PURPLE, ORANGE, SKY, BLACK, MIDDLE_GREY, WINE = COLOURS
TEXT, GREY, PALE, GRID, ON_STRONG, ON_WEAK, PAPER = (colour.light for colour in PLAIN)

STRATEGY_COLOURS = {
    "single": BLACK,
    "ddp": BLUE,
    "dp": ORANGE,
    "allreduce": RED,
    "allreduce_flat": PURPLE,
    "gather_scatter": GREEN,
    "zero1": SKY,
    "fsdp": WINE,
}
"""The colour of each strategy in all pictures; others are grey."""


def strategy_colour(strategy: str) -> str:
    """Return the colour of a strategy, the same in every picture.

    >>> strategy_colour("ddp")
    '#0072B2'
    """
    return STRATEGY_COLOURS.get(strategy, MIDDLE_GREY)


class Look(NamedTuple):
    """The look of a line: its colour is its strategy's, dashes and marker tell sizes apart."""

    colour: str
    dashes: Any = "-"
    marker: str = ""


DASHES = ("-", (0, (5, 1.8)), (0, (1.2, 1.6)), (0, (6, 1.6, 1.2, 1.6)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")

LINES = 8
"""The most lines in a panel whose legend names each of them."""


def looks(strategies: Mapping[str, str]) -> dict[str, Look]:
    """Return a look for each line from its strategy, by label; lines of one strategy differ.

    >>> [look.marker for look in looks({"ddp 2-GPU": "ddp", "ddp 4-GPU": "ddp"}).values()]
    ['o', 's']
    """
    numbers: dict[str, int] = {}
    result = {}
    for label, strategy in strategies.items():
        number = numbers[strategy] = numbers.get(strategy, -1) + 1
        dashes, marker = DASHES[number % len(DASHES)], MARKERS[number % len(MARKERS)]
        result[label] = Look(strategy_colour(strategy), dashes, marker)
    return result


IDEAL: Any = {"color": GREY, "ls": (0, (4, 3)), "lw": 0.9, "zorder": 1}
"""The look of ideal lines."""


def ideal() -> "Artist":
    """Return the legend's entry of the ideal line."""
    from matplotlib.lines import Line2D  # noqa: PLC0415 - heavy

    return Line2D([], [], **IDEAL)


def hollow(
    axis: "Axes", points: Sequence[tuple[float, float]], colour: str, marker: str = "o"
) -> None:
    """Draw hollow markers over those of doubtful numbers."""
    axis.plot(*zip(*points, strict=True), ls="none", marker=marker, ms=4.5, mec=colour, mfc=PAPER)


PANELS = 6
"""The most panels in a picture."""

STYLE: Any = {
    "figure.dpi": 150,
    "figure.constrained_layout.use": True,
    "font.size": 9,
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "sans-serif"],
    "text.color": TEXT,
    "text.parse_math": False,  # a $ in a name is no formula
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "axes.labelcolor": GREY,
    "axes.edgecolor": GREY,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "lines.solid_capstyle": "round",
    "svg.fonttype": "none",  # text stays text: it can be read, searched and copied
    "svg.hashsalt": "hpml_jobs",  # fixes the ids in an SVG: same picture, same bytes
}


@contextmanager
def applied() -> Iterator[None]:
    """Draw in this style within the `with` block, whatever matplotlibrc the user has."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 - heavy, and only writing a report draws
    except ValueError as fault:
        raise HpmlError(f"matplotlib does not start ({fault}): unset MPLBACKEND") from fault
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


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


def frame(figure: "Figure", title: str, caption: str) -> None:
    """Write the heading above a figure, and the caption below it in small type."""
    from matplotlib.font_manager import FontProperties  # noqa: PLC0415 - heavy

    legend = figure.legends[0] if figure.legends else _legend(figure, [], [], 1)
    legend.set_title(title, prop=FontProperties(size=TITLE, weight="bold"))
    width = round(figure.get_figwidth() * 16.5)
    lines = "\n".join(textwrap.wrap(caption, width))
    figure.supxlabel(lines, x=0.008, ha="left", fontsize=7.5, color=GREY, linespacing=1.35)


def legend(figure: "Figure", colours: Mapping[str, str]) -> None:
    """Write one legend of filled parts above all panels, where it covers no data."""
    from matplotlib.patches import Patch  # noqa: PLC0415 - heavy

    entries(figure, {name: Patch(color=colour) for name, colour in colours.items()})


def line_legend(figure: "Figure", looks: Mapping[str, Look], *, markers: bool = True) -> None:
    """Write one legend of lines above all panels, by label."""
    from matplotlib.lines import Line2D  # noqa: PLC0415 - heavy

    handles = {
        label: Line2D(
            [], [], color=look.colour, ls=look.dashes, marker=look.marker if markers else "", ms=4
        )
        for label, look in looks.items()
    }
    entries(figure, handles)


def entries(figure: "Figure", handles: "Mapping[str, Artist]") -> None:
    """Write one legend of these entries above all panels."""
    longest = max(map(len, handles), default=1)
    across = max(1, min(len(handles), int(figure.get_figwidth() * 13 / (longest + 6))))
    _legend(figure, list(handles.values()), list(handles), across)


def _legend(
    figure: "Figure", handles: "Sequence[Artist]", names: Sequence[str], across: int
) -> "Legend":
    return figure.legend(
        handles,
        names,
        loc="outside upper left",
        ncols=across,
        handlelength=2.2,
        alignment="left",
        borderaxespad=0.3,
    )


def by_ratio(axis: "Axes", at: Sequence[float] = (1, 2, 5), *, of_x: bool = False) -> None:
    """Set a logarithmic y axis (or x axis) with plain numbers, by default at 1, 2 and 5."""
    from matplotlib import ticker  # noqa: PLC0415 - heavy

    (axis.set_xscale if of_x else axis.set_yscale)("log")
    numbers = axis.xaxis if of_x else axis.yaxis
    numbers.set_major_locator(ticker.LogLocator(subs=at))
    numbers.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    numbers.set_minor_locator(ticker.NullLocator())


def by_two(axis: "Axes") -> None:
    """Set a logarithmic y axis with a tick at every power of two."""
    from matplotlib import ticker  # noqa: PLC0415 - heavy

    axis.set_yscale("log", base=2)
    axis.yaxis.set_major_locator(ticker.LogLocator(base=2, numticks=9))
    axis.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_locator(ticker.NullLocator())


def by_powers(axis: "Axes") -> None:
    """Set a logarithmic y axis of counts over many powers of ten: 1, 100, 1e4."""
    from matplotlib import ticker  # noqa: PLC0415 - heavy

    axis.set_yscale("log")
    axis.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_locator(ticker.NullLocator())
