"""The report's pictures: figures with their words, as PNG and SVG files, or for an HTML page.

A page embeds them with `svg.inline_svg`:

    for picture in plots.pictures(report).values():
        figure = svg.inline_svg(picture.figure, picture.name, picture.alt)

and its style sheet gives each `style.VARIABLES` a value in the light and in the dark theme.
"""

import io
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from hpml_jobs.report.choose.picture import pareto
from hpml_jobs.report.communication.ranks import ranks
from hpml_jobs.report.communication.sweep import bandwidth
from hpml_jobs.report.frame import bars, style, svg
from hpml_jobs.report.frame.picture import Picture, frame
from hpml_jobs.report.predict.picture import prediction
from hpml_jobs.report.profiler.timeline import timeline
from hpml_jobs.report.quantization import picture as quantized
from hpml_jobs.report.report import Report
from hpml_jobs.report.scaling.speedup import speedup
from hpml_jobs.report.scaling.throughput import throughput
from hpml_jobs.report.training import lines
from hpml_jobs.report.training.accuracy import accuracy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLOTS: dict[str, Callable[[Report], Picture | None]] = {
    "speedup": speedup,
    "throughput": throughput,
    "pareto": pareto,
    "prediction": prediction,
    "phases": bars.phases,
    "communication": bars.communication,
    "bandwidth": bandwidth,
    "timeline": timeline,
    "ranks": ranks,
    "loss": lines.loss,
    "steps": lines.steps,
    "accuracy": accuracy,
    "profile": bars.profile,
    "quantization": quantized.quantization,
    "weights": quantized.weights,
    "activations": quantized.activations,
}
"""The pictures by name, in the order of reading; a picture without data is None."""


def pictures(report: Report) -> dict[str, Picture]:
    """Return the pictures for which the report has data, by name; they are not rendered yet."""
    with style.applied():
        drawn = {name: draw(report) for name, draw in PLOTS.items()}
    return {name: picture._replace(name=name) for name, picture in drawn.items() if picture}


def files(drawn: Iterable[Picture]) -> dict[str, bytes]:
    """Return the PNG and SVG file of every picture, by file name; the same picture, the same bytes.

    They have the heading above the figure, and the caption below it: the figures are changed.
    """
    return {name: file for picture in drawn for name, file in files_of(picture).items()}


def files_of(picture: Picture) -> dict[str, bytes]:
    """Return the PNG and SVG file of a picture, by file name."""
    with style.applied():
        frame(picture)
        png = _png(picture.figure)
        picture.figure.set_layout_engine("none")  # the PNG's layout is that of the SVG
        svg_text = svg.draw(picture.figure)
    return {f"{picture.name}.png": png, f"{picture.name}.svg": svg_text.encode()}


def _png(figure: "Figure") -> bytes:
    """Draw and lay out the figure once; savefig would do both twice."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - heavy

    content = io.BytesIO()
    canvas: Any = FigureCanvasAgg(figure)  # its print methods have no types
    canvas.print_png(content, metadata={"Software": None})
    return content.getvalue()


def names() -> list[str]:
    """Return the name of every picture file that a report may have."""
    return [f"{name}.{kind}" for name in PLOTS for kind in ("png", "svg")]
