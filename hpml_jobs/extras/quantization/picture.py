"""Picture of quantization: the accuracy after each step."""

from collections.abc import Sequence
from typing import NamedTuple

from hpml_jobs.extras.quantization.table import quantized, results
from hpml_jobs.report.frame import style
from hpml_jobs.report.frame.learning import Mean
from hpml_jobs.report.frame.picture import Axes, Picture, not_drawn, rows
from hpml_jobs.report.report import Report
from hpml_jobs.results.groups import ConditionGroup

ACCURACY = (
    "Accuracy on the whole test set, mean over seeds; bars: one sample standard deviation over "
    "seeds, none with a single seed. Dashed: fp32. In brackets: the bound of a scale, and whether"
    " it is per layer or per output channel."
)


class PlottedStep(NamedTuple):
    """A step of quantization, and the accuracies after it, each with the number of its network."""

    label: str
    accuracies: list[tuple[int, Mean]]


def of_report(report: Report) -> Picture | None:
    """Return the picture of a report; None if nothing was quantized."""
    return quantization(report.sources)


def quantization(groups: Sequence[ConditionGroup]) -> Picture | None:
    """Plot the accuracy by step, a colour per network; None if none was quantized."""
    networks = quantized(groups)
    drawn_runs = networks[: len(style.COLOURS)]
    steps: dict[str, PlottedStep] = {}
    for network, runs in enumerate(drawn_runs):
        for result in results(runs):
            label = result.what  # not its title: the label is the same for all networks
            if result.bound:
                label += f" ({result.bound}, {result.scales})"
            step = steps.setdefault(label, PlottedStep(label, []))
            if mean := result.accuracy:
                step.accuracies.append((network, mean))

    def draw(axis: Axes, steps: Sequence[PlottedStep]) -> list[str]:
        axis.grid(visible=True, axis="y")
        texts = []
        for network, (runs, colour) in enumerate(
            zip(drawn_runs, style.COLOURS, strict=False)
        ):
            aside = 0.16 * (network - (len(drawn_runs) - 1) / 2)
            points = [
                (100 * mean.mean, at, 100 * (mean.deviation or 0.0))
                for at, step in enumerate(steps)
                for number, mean in step.accuracies
                if number == network
            ]
            values, places, deviations = zip(*points, strict=True)
            axis.errorbar(
                values,
                [at + aside for at in places],
                xerr=deviations,
                color=colour,
                fmt="o",
                ms=5,
                elinewidth=1.2,
                capsize=2.5,
            )
            axis.axvline(
                values[0], color=colour, lw=1, ls=(0, (4, 3)), alpha=0.6, zorder=0
            )
            least, worst, _ = min(points)
            text = f"{runs.name} {values[0]:.2f} %, least {least:.2f} % with {steps[worst].label}"
            texts.append(text)
        return texts

    return rows(
        "Accuracy by step of quantization",
        [*steps.values()],
        draw,
        x="test accuracy, %",
        alt="Test accuracy by step of quantization: ",
        caption=[
            ACCURACY,
            not_drawn(
                [runs.name for runs in networks[len(drawn_runs) :]], "quantization.csv"
            ),
        ],
        legend=dict(
            zip((runs.name for runs in drawn_runs), style.COLOURS, strict=False)
        ),
        between=", ",
    )
