"""The report's pictures as PNG and SVG; the same report gives the same bytes."""

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hpml_jobs.report.plots import bars, histograms, lines
from hpml_jobs.report.plots import quantization as quantized
from hpml_jobs.report.plots.accuracy import accuracy
from hpml_jobs.report.plots.style import STYLE
from hpml_jobs.report.report import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLOTS: dict[str, Callable[[Report], "Figure | None"]] = {
    "loss": lines.loss,
    "steps": lines.steps,
    "accuracy": accuracy,
    "profile": bars.profile,
    "quantization": quantized.quantization,
    "weights": histograms.weights,
    "activations": histograms.activations,
}
"""The pictures by name; a picture without data is None."""


def plots(report: Report) -> dict[str, bytes]:
    """Return the files of all pictures for which the report has data, by file name."""
    import matplotlib as mpl  # noqa: PLC0415 - heavy, and only writing a report draws

    files: dict[str, bytes] = {}
    with mpl.rc_context():
        mpl.rcdefaults()  # independent of the user's matplotlibrc
        mpl.rcParams.update(STYLE)
        for name, draw in PLOTS.items():
            figure = draw(report)
            if figure is None:
                continue
            files |= {f"{name}.png": _png(figure), f"{name}.svg": _svg(figure)}
    return files


def _png(figure: "Figure") -> bytes:
    """Draw and lay out the figure once; savefig would do both twice."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415

    content = io.BytesIO()
    canvas: Any = FigureCanvasAgg(figure)  # its print methods have no types
    canvas.print_png(content, metadata={"Software": None})
    figure.set_layout_engine("none")
    return content.getvalue()


def _svg(figure: "Figure") -> bytes:
    """Write the figure with the layout that `_png` computed."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415

    content = io.BytesIO()
    canvas: Any = FigureCanvasSVG(figure)
    canvas.print_svg(content, metadata={"Date": None})
    return content.getvalue()


def names() -> list[str]:
    """Return the name of every picture file that a report may have."""
    return [f"{name}.{kind}" for name in PLOTS for kind in ("png", "svg")]
