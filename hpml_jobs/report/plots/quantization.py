"""Picture of the accuracy after each step of quantization."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hpml_jobs.report.plots import style
from hpml_jobs.report.plots.picture import Picture, listed, not_drawn, sentences
from hpml_jobs.report.report import Report
from hpml_jobs.report.tables.quantization import Result, Runs, results

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CAPTION = (
    "Accuracy on the whole test set, mean over seeds; bars: one sample standard deviation over "
    "seeds, none with a single seed. Dashed: fp32. In brackets: the bound of a scale, and whether"
    " it is per layer or per output channel."
)


def quantization(report: Report) -> Picture | None:
    """Plot the accuracy by step, a colour per network; None if none was quantized."""
    shown = report.quantized[: len(style.COLOURS)]
    if not shown:
        return None
    steps = list(dict.fromkeys(_step(result) for runs in shown for result in results(runs)))
    figure, (axis,) = style.panels(1, height=0.6 + 0.28 * len(steps))
    for number, runs in enumerate(shown):
        aside = 0.16 * (number - (len(shown) - 1) / 2)
        _draw(axis, runs, steps, style.COLOURS[number], aside)
    axis.set_yticks(range(len(steps)), steps)
    axis.invert_yaxis()
    axis.set_xlabel("test accuracy, %")
    colours = dict(zip((runs.name for runs in shown), style.COLOURS, strict=False))
    style.legend(figure, colours)
    omitted = [runs.name for runs in report.quantized[len(shown) :]]
    caption = sentences(CAPTION, not_drawn(omitted, "quantization.csv"))
    return Picture("Accuracy by step of quantization", figure, _alt(shown), caption)


def _alt(shown: Sequence[Runs]) -> str:
    """Return the first and the worst accuracy of each network."""
    texts = []
    for runs in shown:
        means = [(result, mean.mean) for result in results(runs) if (mean := result.accuracy)]
        worst, least = min(means, key=lambda pair: pair[1])
        texts.append(
            f"{runs.name} {100 * means[0][1]:.2f} %, least {100 * least:.2f} % with {_step(worst)}"
        )
    return f"Test accuracy by step of quantization: {listed(texts)}."


def _step(result: Result) -> str:
    """Return a step's label, which is the same for all networks."""
    what = result.what.replace(", int32 bias", "")
    return f"{what} ({result.bound}, {result.scales})" if result.bound else what


def _draw(axis: "Axes", runs: Runs, steps: list[str], colour: str, aside: float) -> None:
    means = [(result, mean) for result in results(runs) if (mean := result.accuracy)]
    axis.errorbar(
        [100 * mean.mean for _, mean in means],
        [steps.index(_step(result)) + aside for result, _ in means],
        xerr=[100 * (mean.deviation or 0.0) for _, mean in means],
        color=colour,
        fmt="o",
        ms=5,
        elinewidth=1.2,
        capsize=2.5,
    )
    axis.axvline(100 * means[0][1].mean, color=colour, lw=1, ls=(0, (4, 3)), alpha=0.6, zorder=0)
