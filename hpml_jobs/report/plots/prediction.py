"""Picture of predicted throughput: measured points, prediction, band, and no change per GPU."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hpml_jobs.checks.result import Affected
from hpml_jobs.core.strategies import BASELINE
from hpml_jobs.predict.forecast import Prediction
from hpml_jobs.predict.place import Observation, Place
from hpml_jobs.report.merge import forecasts
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.plots import series, style
from hpml_jobs.report.plots.picture import Picture, listed, not_drawn, sentences
from hpml_jobs.report.plots.series import Keys, Point, Series
from hpml_jobs.report.report import Report, ReportGroup
from hpml_jobs.report.text import captions
from hpml_jobs.report.text.numbers import per_second, percent

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

CAPTION = (
    "{what} per {unit} in an iteration of median length, on N {units}: level is ideal. Dashed: "
    "predicted, not measured; shaded: its band, meant to contain 90 % of measurements; dotted: no "
    "change per {unit}."
)
ERRORS = "Mean error on left-out cells, model and no change: {listed}."
NULL: Any = {"color": style.GREY, "ls": (0, (1, 2)), "lw": 1.2, "zorder": 1}
"""The look of the lines of no change per GPU."""

PREDICTED = (0, (5, 1.8))
"""The dashes of predicted lines."""


class Line(NamedTuple):
    """The measured and the predicted throughput of a strategy at one batch, by GPUs.

    `per_sample` are the units of a sample.
    """

    measured: Series
    predicted: tuple[Prediction, ...]
    per_sample: int


class Panel(NamedTuple):
    """The lines of one batch in one group."""

    title: str
    units: str
    unit: str
    lines: list[Line]


def prediction(report: Report) -> Picture | None:
    """Plot what is predicted beside what was measured; None where nothing is predicted."""
    panels = [panel for group in report.groups for panel in _panels(report, group)]
    if not panels:
        return None
    shown, keys = panels[: style.PANELS], series.keys(report)
    figure, axes = style.panels(len(shown), columns=style.even(len(shown), 3), height=3.0)
    for axis, panel in zip(axes, shown, strict=True):
        axis.set_title(panel.title, loc="left")
        for line in panel.lines[: series.LINES]:
            _draw(axis, line, keys)
        sizes = [p.gpus for line in panel.lines for p in line.measured.points]
        sizes += [p.target.gpus for line in panel.lines for p in line.predicted]
        series.gpu_axis(axis, sizes, panel.units)
        axis.set_ylim(bottom=0)
    device = report.groups[0].source.device
    unit = captions.unit(device)
    for axis in style.left_ones(axes):
        axis.set_ylabel(f"{shown[0].unit}/s per {unit}")
    lines = [line for panel in shown for line in panel.lines]
    entries = series.legend([line.measured for line in lines], keys, batch="")
    style.entries(figure, entries | _entries())
    missing = [panel.title for panel in panels[len(shown) :]]
    missing += [line.measured.label for panel in shown for line in panel.lines[series.LINES :]]
    what = f"{shown[0].unit.capitalize()}/s"
    caption = sentences(
        CAPTION.format(what=what, unit=unit, units=captions.units(device)),
        _errors(shown),
        not_drawn(missing, "predictions.csv"),
    )
    return Picture("Predicted throughput", figure, _alt(shown, unit), caption)


def _panels(report: Report, group: ReportGroup) -> list[Panel]:
    """Return a panel for each batch of which something is predicted."""
    forecast, source = group.forecast, group.source
    workload = source.a_cell.workload
    known = workload.units_per_sample  # of a custom workload of tokens it may not be
    counted = workload.samples_name if known is None else workload.throughput_unit.value
    per_sample = known or 1
    panels = []
    for batch in sorted({p.target.batch for p in forecast.predictions}):
        by_line: dict[tuple[str, str], list[Prediction]] = {}
        for predicted in forecast.predictions:
            if predicted.target.batch == batch:
                by_line.setdefault(_line_key(predicted.target), []).append(predicted)
        lines = [
            Line(
                _measured(source, members[0].target, forecast.observations, per_sample),
                tuple(sorted(members, key=lambda p: p.target.gpus)),
                per_sample,
            )
            for members in by_line.values()
        ]
        unit = captions.unit(source.device)
        title = f"batch {batch} per {unit}"
        title = f"{report.name(group)}, {title}" if report.several else title
        panels.append(Panel(title, captions.units(source.device), counted, lines))
    return panels


def _line_key(place: Place) -> tuple[str, str]:
    """Return what tells the lines of a batch apart: strategy and treatment."""
    return place.strategy.value, forecasts.setup_of(place).treatment


def _measured(
    group: ConditionGroup, of: Place, observations: Iterable[Observation], per_sample: int
) -> Series:
    """Return the measured places of a line, the plain loop on one GPU before them."""
    treatment = forecasts.setup_of(of).treatment
    members = [
        o
        for o in observations
        if o.batch == of.batch
        and (o.strategy is of.strategy or (o.strategy is BASELINE and o.gpus == 1))
        and forecasts.setup_of(o).treatment == treatment
    ]
    doubtful = {
        slug for row in group.timed if group.doubts(row, Affected.TIME) for slug in row.cells
    }
    points = [
        Point(
            o.gpus,
            o.nodes,
            per_gpu(o, o.step_s, per_sample),
            None,
            not doubtful.isdisjoint(o.cells),
        )
        for o in members
    ]
    return series.make(of.strategy.value, treatment, of.batch, points)


def per_gpu(place: Place, step_s: float, per_sample: int) -> float:
    """Return the units per second of one GPU, if an iteration takes step_s."""
    return place.batch * place.accumulate * per_sample / step_s


def _draw(axis: "Axes", line: Line, keys: Keys) -> None:
    look = keys.look(line.measured)
    series.draw(axis, [line.measured], keys)
    last = [p for p in line.measured.points if p.gpus < line.predicted[0].target.gpus][-1:]
    sizes = [*(p.gpus for p in last), *(p.target.gpus for p in line.predicted)]
    values = [
        *(p.value for p in last),
        *(per_gpu(p.target, p.step_s, line.per_sample) for p in line.predicted),
    ]
    axis.plot(sizes, values, color=look.colour, ls=PREDICTED, lw=1.4, marker="x", ms=4.5)
    nulls = [per_gpu(p.target, p.null_s, line.per_sample) for p in line.predicted]
    axis.plot([*(p.gpus for p in last), *sizes[len(last) :]], [*nulls[: len(last)], *nulls], **NULL)
    ends = [
        *((p.gpus, p.value, p.value) for p in last),
        *(
            (
                p.target.gpus,
                per_gpu(p.target, p.high_s, line.per_sample),
                per_gpu(p.target, p.low_s, line.per_sample),
            )
            for p in line.predicted
            if p.low_s and p.high_s
        ),
    ]
    if len(ends) > len(last):
        at, lows, highs = zip(*ends, strict=True)
        axis.fill_between(at, lows, highs, color=look.colour, alpha=0.16, lw=0)


def _entries() -> "dict[str, Artist]":
    """Return the legend's entries of what is not measured."""
    from matplotlib.lines import Line2D  # noqa: PLC0415 - heavy
    from matplotlib.patches import Patch  # noqa: PLC0415 - heavy

    return {
        "predicted": Line2D([], [], color=style.GREY, ls=PREDICTED, lw=1.4),
        "90 % band": Patch(color=style.GREY, alpha=0.25, lw=0),
        "no change per GPU": Line2D([], [], **NULL),
    }


def _errors(panels: Sequence[Panel]) -> str:
    """Return the errors on left-out cells of each line that has them."""
    texts = [
        f"{panel.title}, {line.measured.name} {percent(skill.model.mean)} % and "
        f"{percent(skill.null.mean)} %"
        for panel in panels
        for line in panel.lines
        if (skill := line.predicted[-1].skill)
    ]
    return ERRORS.format(listed=listed(texts, "; ")) if texts else ""


def _alt(panels: Sequence[Panel], unit: str) -> str:
    """Return the predicted throughput of every line at its largest size."""
    texts = [
        f"{panel.title}, {line.measured.name}: {_figures(line)} on "
        f"{line.predicted[-1].target.gpus} {panel.units}"
        for panel in panels
        for line in panel.lines
    ]
    return f"Predicted {panels[0].unit}/s per {unit}; {listed(texts, '; ')}."


def _figures(line: Line) -> str:
    """Return the last predicted throughput per GPU of a line with its band."""
    predicted = line.predicted[-1]
    ends_s = (predicted.step_s, predicted.high_s, predicted.low_s)
    figures = [
        per_second(per_gpu(predicted.target, end_s, line.per_sample)) for end_s in ends_s if end_s
    ]
    if len(figures) < len(ends_s):
        return f"{figures[0]} without a band"
    return f"{figures[0]} [{figures[1]}, {figures[2]}]"
