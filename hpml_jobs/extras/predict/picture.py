"""Picture of predicted throughput: measured points, prediction, band, and no change per GPU."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.strategies import BASELINE, Strategy
from hpml_jobs.extras.predict.forecast import Forecast
from hpml_jobs.extras.predict.model import Skill
from hpml_jobs.extras.predict.place import Target
from hpml_jobs.report.frame import captions, series, style
from hpml_jobs.report.frame.numbers import per_second, percent
from hpml_jobs.report.frame.picture import (
    Axes,
    Entry,
    Panel,
    Picture,
    batch_title,
    cut,
    panels,
)
from hpml_jobs.report.frame.series import Point, Series
from hpml_jobs.report.report import Report
from hpml_jobs.results.groups import ConditionGroup

CAPTION = (
    "{what} per {unit} in an iteration of median length, on N {units}: level is ideal. Dashed: "
    "predicted, not measured; shaded: its band, meant to contain 90 % of measurements; dotted: no "
    "change per {unit}."
)
ERRORS = "Mean error on left-out cells, model and no change: {listed}."

PREDICTED: Any = {"ls": (0, (5, 1.8)), "lw": 1.4}
NO_CHANGE: Any = {"color": style.GREY, "ls": (0, (1, 2)), "lw": 1.2, "zorder": 1}
"""The properties of predicted lines, and of those of no change per GPU."""

LEGEND: dict[str, Entry] = {
    "predicted": {"color": style.GREY, **PREDICTED},
    "90 % band": f"{style.GREY}40",  # the grey at a quarter of its strength
    "no change per GPU": NO_CHANGE,
}


class Predicted(NamedTuple):
    """A predicted size, in units per second of one GPU: with its band, and with no change."""

    gpus: int
    rate: float
    band: tuple[float, float]
    no_change: float
    skill: Skill | None


class PredictedLine(NamedTuple):
    """The throughput of a strategy at one batch, by GPUs; `unit` is what it counts."""

    measured: Series
    predicted: list[Predicted]
    unit: str


def of_report(report: Report) -> Picture | None:
    """Return the picture of a report; None where nothing is predicted."""
    return prediction(
        report.sources, [group.results["predict"] for group in report.groups]
    )


def prediction(
    groups: Sequence[ConditionGroup], forecasts: Sequence[Forecast]
) -> Picture | None:
    """Plot what is predicted beside what was measured; None where nothing is predicted."""
    all_panels = [
        Panel(batch_title(group, batch), [*_lines(group, forecast, batch)])
        for group, forecast in zip(groups, forecasts, strict=True)
        for batch in sorted({p.target.batch for p in forecast.predictions})
    ]
    first_panels, missing = cut(all_panels)
    if not first_panels:
        return None
    keys, device = series.keys(groups), groups[0].device
    gpu, gpus = captions.unit(device), captions.units(device)

    def draw(axis: Axes, panel: Panel[list[PredictedLine]]) -> list[str]:
        for line in panel.data[: series.LINES]:
            _draw(axis, line, keys)
        sizes = [p.gpus for line in panel.data for p in line.measured.points]
        sizes += [p.gpus for line in panel.data for p in line.predicted]
        series.gpu_axis(axis, sizes, gpus)
        axis.set_ylim(bottom=0)
        axis.set_ylabel(f"{panel.data[0].unit}/s per {gpu}")
        return [
            f"{panel.title}, {line.measured.name}: {per_second(last.rate)} "
            f"[{per_second(last.band[0])}, {per_second(last.band[1])}] on {last.gpus} {gpus}"
            for line in panel.data
            for last in line.predicted[-1:]
        ]

    unit = first_panels[0].data[0].unit
    lines, errors = [], []
    for panel in first_panels:
        lines += panel.data
        missing += [line.measured.label for line in panel.data[series.LINES :]]
        for line in panel.data:
            if skill := line.predicted[-1].skill:
                means = f"{percent(skill.model.mean)} % and {percent(skill.null.mean)} %"
                errors.append(f"{panel.title}, {line.measured.name} {means}")
    return panels(
        "Predicted throughput",
        first_panels,
        draw,
        alt=f"Predicted {unit}/s per {gpu}; ",
        caption=[
            CAPTION.format(what=f"{unit.capitalize()}/s", unit=gpu, units=gpus),
            ERRORS.format(listed=captions.first_few(errors, "; ")) if errors else "",
        ],
        legend=series.legend([line.measured for line in lines], keys) | LEGEND,
        missing=missing,
        file="predictions.csv",
        height=3.0,
    )


def _lines(
    group: ConditionGroup, forecast: Forecast, batch: int
) -> Iterator[PredictedLine]:
    """Yield a line for each strategy and treatment of which something is predicted at a batch."""
    workload = group.a_cell.workload
    per_sample = (
        workload.units_per_sample
    )  # None: a custom workload of tokens may not say it
    unit = workload.samples_name if per_sample is None else workload.throughput_unit.value

    def rate(target: Target, step_s: float) -> float:
        return target.batch * target.accumulate * (per_sample or 1) / step_s

    by_line: dict[tuple[Strategy, str], list[Predicted]] = {}
    for p in forecast.predictions:
        at = p.target
        if at.batch == batch:
            band = (rate(at, p.high_s), rate(at, p.low_s))
            point = Predicted(
                at.gpus, rate(at, p.step_s), band, rate(at, p.null_s), p.skill
            )
            by_line.setdefault((at.strategy, at.kind.treatment), []).append(point)
    doubtful = {
        slug
        for row in group.timed
        if group.doubts(row, Affected.TIME)
        for slug in row.cells
    }
    for (strategy, treatment), predicted in by_line.items():
        points = [
            Point(
                o.gpus, o.nodes, rate(o, o.step_s), None, not doubtful.isdisjoint(o.cells)
            )
            for o in forecast.observations
            if o.batch == batch
            and (o.strategy is strategy or (o.strategy is BASELINE and o.gpus == 1))
            and o.kind.treatment == treatment
        ]
        predicted.sort(key=lambda point: point.gpus)
        yield PredictedLine(
            series.make(strategy.value, treatment, batch, points), predicted, unit
        )


def _draw(axis: Axes, line: PredictedLine, keys: series.Keys) -> None:
    """Draw what was measured, and from its last point below them what is predicted."""
    series.draw(axis, [line.measured], keys)
    colour = keys.look(line.measured).colour
    smaller = [p for p in line.measured.points if p.gpus < line.predicted[0].gpus]
    points = []  # size, rate, ends of the band, rate without a change
    for last in smaller[-1:]:
        points.append(
            (last.gpus, last.value, last.value, last.value, line.predicted[0].no_change)
        )
    for p in line.predicted:
        points.append((p.gpus, p.rate, *p.band, p.no_change))
    sizes, rates, low, high, no_change = zip(*points, strict=True)
    axis.plot(sizes, rates, color=colour, marker="x", ms=4.5, **PREDICTED)
    axis.plot(sizes, no_change, **NO_CHANGE)
    axis.fill_between(sizes, low, high, color=colour, alpha=0.16, lw=0)
