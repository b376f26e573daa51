"""A picture: its style, panels that a function draws each, legend and words; as SVG or PNG."""

import io
import textwrap
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise, zip_longest
from math import ceil
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.text import few
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.captions import MARK
from hpml_jobs.results.cells import Place
from hpml_jobs.results.groups import ConditionGroup

COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#B87900",
    "#3E97D1",
    "#111111",
    "#8C8C8C",
    "#882255",
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
"""The colour of each strategy in all pictures."""


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


if TYPE_CHECKING:
    import matplotlib.axes
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

Axes: TypeAlias = "matplotlib.axes.Axes"
"""What a panel is drawn on; matplotlib is loaded only to draw, because that takes a second."""


Data = TypeVar("Data")

Entry = str | Mapping[str, Any]
"""An entry of a legend: the colour of a filled part, or the properties of a line."""

TITLE_SIZE = 11.5
"""Font size of a heading, in points."""

PANELS = 6
"""The most panels of most pictures."""

NAMED = 6
"""The most items that a sentence lists by name."""

WIDE, NARROW = 10.0, 7.0
"""Width in inches of pictures with several columns of panels, and with one column."""


class Picture(NamedTuple):
    """A figure without heading and caption, and the words that belong to it.

    `alt` says in one sentence what it shows, with its main numbers. `caption` says how they were
    measured and what is not drawn. `name` is that of its files, and is set by `report.pictures`.
    """

    title: str
    figure: "Figure"
    alt: str
    caption: str
    name: str = ""


class Panel(NamedTuple, Generic[Data]):
    """A panel of a picture: its title, and what is drawn in it."""

    title: str
    data: Data


def cut(panels: Sequence[Panel[Data]]) -> tuple[list[Panel[Data]], list[str]]:
    """Return the panels that fit into a picture, and the titles of the others."""
    return list(panels[:PANELS]), [panel.title for panel in panels[PANELS:]]


def panels(  # noqa: PLR0913  (what is around the panels)
    title: str,
    drawn: Sequence[Panel[Data]],
    draw: Callable[[Axes, Panel[Data]], Sequence[str]],
    *,
    caption: list[str],
    legend: Mapping[str, Entry],
    missing: Sequence[str] = (),
    columns: int = 3,
    height: float = 2.8,
) -> Picture | None:
    """Return a picture of panels, at most `columns` in a row; None without a panel.

    `draw` draws a panel on its axes, labels them, and returns its main numbers in words: with the
    title, they are the picture's `alt`. The sentences of `caption` end with what is `missing`.
    `height` is that of a panel in inches.
    """
    if not drawn:
        return None
    down = ceil(len(drawn) / columns)
    across = ceil(len(drawn) / down)  # the rows are equally full
    size = (WIDE if across > 1 else NARROW, down * height + 1.1)
    figure, texts = _figure(drawn, draw, (down, across), size, legend)
    alt = f"{title}: {few(texts, NAMED, '; ')}."
    more = f"Not drawn: {few(missing, NAMED)}." if missing else ""
    sentences = (*caption, more)
    return Picture(title, figure, alt, " ".join(filter(None, sentences)))


def _figure(
    drawn: Sequence[Panel[Data]],
    draw: Callable[[Axes, Panel[Data]], Sequence[str]],
    shape: tuple[int, int],
    size: tuple[float, float],
    legend: Mapping[str, Entry],
) -> tuple["Figure", list[str]]:
    """Return panels in rows and columns of a size in inches, and their main numbers in words."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - heavy

    figure = Figure(figsize=size)
    grid = figure.subplots(*shape, squeeze=False)
    texts: list[str] = []
    for axis, panel in zip_longest(grid.flat, drawn):
        if panel is None:  # the last row may have fewer panels
            axis.remove()
            continue
        axis.set_title(textwrap.fill(panel.title, 40), loc="left")
        texts += draw(axis, panel)
    for row in grid:
        for left, axis in reversed([*pairwise(row)]):
            # a row of equal axes has one label
            if axis.get_ylabel() == left.get_ylabel():
                axis.set_ylabel("")
    _add_legend(figure, legend)
    return figure, texts


def _add_legend(figure: "Figure", legend: Mapping[str, Entry]) -> None:
    """Write one legend above all panels, where it covers no data."""
    from matplotlib.lines import Line2D  # noqa: PLC0415 - heavy
    from matplotlib.patches import Patch  # noqa: PLC0415 - heavy

    handles: list[Artist] = [
        Patch(color=entry) if isinstance(entry, str) else Line2D([], [], **entry)
        for entry in legend.values()
    ]
    longest = max(map(len, legend), default=1)
    across = max(1, min(len(legend), int(figure.get_figwidth() * 13 / (longest + 6))))
    figure.legend(
        handles,
        list(legend),
        loc="outside upper left",
        ncols=across,
        handlelength=2.2,
        alignment="left",
        borderaxespad=0.3,
    )


def logarithmic(
    axis: Axes,
    which: str,
    label: str,
    *,
    at: Sequence[float] = (1, 2, 5),
    base: int = 10,
) -> None:
    """Set a logarithmic x or y axis with plain numbers, by default at 1, 2 and 5.

    Its label says that it is logarithmic: an axis from 1 to 4 GPUs may look linear.
    """
    from matplotlib import ticker  # noqa: PLC0415 - heavy

    axis.set(**{f"{which}scale": "log", f"{which}label": f"{label} (log)"})
    numbers = axis.xaxis if which == "x" else axis.yaxis
    numbers.set_major_locator(ticker.LogLocator(base=base, subs=at))
    numbers.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    numbers.set_minor_locator(ticker.NullLocator())


def named(group: ConditionGroup, text: str, between: str = ": ") -> str:
    """Return a text after the name of its group, if a study has several groups."""
    return f"{group.name}{between}{text}" if group.name else text


def cell_label(
    group: ConditionGroup, place: Place, *, is_doubtful: bool, among: int = 2
) -> str:
    """Return the label of a cell in a picture of so many groups, with the mark of checks."""
    label = captions.cell_words(place, group.device)
    label = named(group, label) if among > 1 else label
    return f"{MARK} {label}" if is_doubtful else label


def svg_address(picture: Picture) -> str:
    """Return a picture without its words as SVG in a data: address, for an HTML page."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415 - heavy

    content = io.BytesIO()
    figure = picture.figure
    canvas: Any = FigureCanvasSVG(figure)  # its print methods have no types
    before = figure.dpi
    with applied():
        canvas.print_svg(content, metadata={"Date": None})  # it sets 72 dpi
    figure.set_dpi(before)
    return f"data:image/svg+xml;base64,{b64encode(content.getvalue()).decode()}"


def png_files(drawn: Iterable[Picture]) -> dict[str, bytes]:
    """Return every picture as PNG, by file name; the same picture, the same bytes.

    The figures are changed.
    """
    return {f"{picture.name}.png": png(picture) for picture in drawn}


def png(picture: Picture) -> bytes:
    """Return a picture as PNG, with its heading above and its caption below the figure.

    The figure is changed. It is laid out once; savefig would do that twice.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - heavy

    content = io.BytesIO()
    canvas: Any = FigureCanvasAgg(picture.figure)  # its print methods have no types
    with applied():
        _add_words(picture)
        canvas.print_png(content, metadata={"Software": "hpml_jobs"})
    return content.getvalue()


def _add_words(picture: Picture) -> None:
    """Write the heading above a picture's legend, and the caption below in small type."""
    from matplotlib.font_manager import FontProperties  # noqa: PLC0415 - heavy

    figure = picture.figure
    bold = FontProperties(size=TITLE_SIZE, weight="bold")
    figure.legends[0].set_title(picture.title, prop=bold)
    width = round(figure.get_figwidth() * 16.5)
    lines = "\n".join(textwrap.wrap(picture.caption, width))
    look = {"fontsize": 7.5, "color": GREY, "linespacing": 1.35}
    figure.supxlabel(lines, x=0.008, ha="left", **look)
