"""The style of all pictures: colours for colour-blind readers, looks of lines, fonts and axes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from hpml_jobs.core.errors import HpmlError

COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B87900"),
    *("#3E97D1", "#111111", "#8C8C8C", "#882255"),
)
"""Okabe and Ito's palette for all kinds of colour vision, grey in place of yellow, and Tol's wine.

Orange and sky blue are darker than theirs: every colour has a contrast of 3:1 or more.
"""

BLUE, RED, GREEN, PURPLE, ORANGE, SKY, BLACK, MIDDLE_GREY, WINE = COLOURS

TEXT, GREY, PALE = "#222222", "#555555", "#D9D9D9"
"""Headings; axes and captions; ideals and ranges."""

GRID, PAPER = "#E6E6E6", "#FFFFFF"

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

    @property
    def line(self) -> dict[str, Any]:
        """The look as properties of matplotlib's lines."""
        return {"color": self.colour, "ls": self.dashes, "marker": self.marker}


DOT = (1.2, 1.6)
DASHES = ("-", (0, DOT), *((0, (6, 1.6) + dots * DOT) for dots in range(6)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")

IDEAL: Any = {"color": GREY, "ls": (0, (4, 3)), "lw": 0.9, "zorder": 1}
"""The properties of ideal lines."""

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
        raise HpmlError(
            f"matplotlib does not start ({fault}): unset MPLBACKEND"
        ) from fault
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield
