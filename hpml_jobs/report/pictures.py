"""The report's pictures: figures with their words, as PNG files, or for an HTML page."""

import io
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hpml_jobs.report.communication import phases_picture
from hpml_jobs.report.frame import style
from hpml_jobs.report.frame.picture import Picture
from hpml_jobs.report.learning import loss_picture
from hpml_jobs.report.report import Report
from hpml_jobs.report.scaling.gap import waterfall
from hpml_jobs.report.scaling.picture import speedup
from hpml_jobs.results.groups import ConditionGroup

TITLE_SIZE = 11.5
"""Font size of a heading, in points."""


def _of_groups(
    draw: Callable[[Sequence[ConditionGroup]], Picture | None],
) -> Callable[[Report], Picture | None]:
    return lambda report: draw(report.sources)


def _gap(report: Report) -> Picture | None:
    return waterfall(
        [
            (group.source, place, gap)
            for group in report.groups
            for place, gap in group.main_gaps.items()
        ]
    )


SCALING: dict[str, Callable[[Report], Picture | None]] = {
    "speedup": _of_groups(speedup),
    "gap": _gap,
    "phases": _of_groups(phases_picture),
}
"""The pictures of scaling, in the order of reading."""

TRAINING: dict[str, Callable[[Report], Picture | None]] = {
    "loss": _of_groups(loss_picture)
}
"""The pictures of training: on a page they are below those of scaling."""

PLOTS = SCALING | TRAINING
"""The pictures by name, in the order of reading; a picture without data is None."""


def pictures(report: Report) -> dict[str, Picture]:
    """Return the pictures for which the report has data, by name; they are not rendered yet."""
    with style.applied():
        drawn = {name: draw(report) for name, draw in PLOTS.items()}
    return {name: shown._replace(name=name) for name, shown in drawn.items() if shown}


def files(drawn: Iterable[Picture]) -> dict[str, bytes]:
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
    with style.applied():
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
    look = {"fontsize": 7.5, "color": style.GREY, "linespacing": 1.35}
    figure.supxlabel(lines, x=0.008, ha="left", **look)
