"""The report's pictures, each as PNG and SVG; the same report gives the same bytes."""

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
"""The pictures by name; one that has nothing to show is None."""


def plots(report: Report) -> dict[str, bytes]:
    """The files of all pictures that the report has something for, by name."""
    import matplotlib as mpl  # noqa: PLC0415 - heavy, and only writing a report draws

    files: dict[str, bytes] = {}
    with mpl.rc_context():
        mpl.rcdefaults()  # whatever the person's own matplotlibrc says
        mpl.rcParams.update(STYLE)
        for name, draw in PLOTS.items():
            figure = draw(report)
            if figure is None:
                continue
            files |= {f"{name}.png": _png(figure), f"{name}.svg": _svg(figure)}
    return files


def _png(figure: "Figure") -> bytes:
    """RenderedTable once, and laid out with it; savefig would do all of that twice."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415

    content = io.BytesIO()
    canvas: Any = FigureCanvasAgg(figure)  # its print methods have no types
    canvas.print_png(content, metadata={"Software": None})
    figure.set_layout_engine("none")
    return content.getvalue()


def _svg(figure: "Figure") -> bytes:
    """As it was laid out."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415

    content = io.BytesIO()
    canvas: Any = FigureCanvasSVG(figure)
    canvas.print_svg(content, metadata={"Date": None})
    return content.getvalue()


def names() -> list[str]:
    """Every file that a report may have."""
    return [f"{name}.{kind}" for name in PLOTS for kind in ("png", "svg")]
