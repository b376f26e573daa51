"""Picture of predicted throughput: measured points, prediction, band, and no change per GPU."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.strategies import BASELINE, Device, Strategy
from hpml_jobs.extras.predict.forecast import Forecast
from hpml_jobs.extras.predict.model import Skill
from hpml_jobs.extras.predict.place import MeasuredPlace, Target
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
    unit = first_panels[0].data[0].unit
    caption = [CAPTION.format(what=f"{unit.capitalize()}/s", unit=gpu, units=gpus)]
    lines, errors = list[PredictedLine](), list[str]()
    for panel in first_panels:
        lines += panel.data
        missing += [line.measured.label for line in panel.data[series.LINES :]]
        errors += _errors(panel)
    if errors:
        caption.append(ERRORS.format(listed=captions.first_few(errors, "; ")))
    return panels(
        "Predicted throughput",
        first_panels,
        partial(_draw, keys=keys, device=device),
        alt=f"Predicted {unit}/s per {gpu}; ",
        caption=caption,
        legend=series.legend([line.measured for line in lines], keys) | LEGEND,
        missing=missing,
        file="predictions.csv",
        height=3.0,
    )


def _errors(panel: Panel[list[PredictedLine]]) -> Iterator[str]:
    """Yield the mean errors on left-out cells of each line that has some."""
    for line in panel.data:
        if skill := line.predicted[-1].skill:
            means = f"{percent(skill.model.mean)} % and {percent(skill.null.mean)} %"
            yield f"{panel.title}, {line.measured.name} {means}"


def _draw(
    axis: Axes, panel: Panel[list[PredictedLine]], *, keys: series.Keys, device: Device
) -> list[str]:
    """Draw the lines of a batch; return the prediction with most GPUs of each in words."""
    gpus, texts, sizes = captions.units(device), list[str](), list[int]()
    for line in panel.data[: series.LINES]:
        _draw_line(axis, line, keys)
    for line in panel.data:
        sizes += [point.gpus for point in line.measured.points]
        sizes += [point.gpus for point in line.predicted]
        last = line.predicted[-1]
        texts.append(
            f"{panel.title}, {line.measured.name}: {per_second(last.rate)} "
            f"[{per_second(last.band[0])}, {per_second(last.band[1])}] on {last.gpus} {gpus}"
        )
    series.gpu_axis(axis, sizes, gpus)
    axis.set_ylim(bottom=0)
    axis.set_ylabel(f"{panel.data[0].unit}/s per {captions.unit(device)}")
    return texts


def _lines(
    group: ConditionGroup, forecast: Forecast, batch: int
) -> Iterator[PredictedLine]:
    """Yield a line for each strategy and treatment of which something is predicted at a batch."""
    workload = group.a_cell.workload
    per_sample, unit = workload.units_per_sample, workload.throughput_unit.value
    if per_sample is None:  # a custom workload of tokens may not say it
        per_sample, unit = 1, workload.samples_name

    def rate(target: Target, step_s: float) -> float:
        return target.batch * target.accumulate * per_sample / step_s

    by_line: dict[tuple[Strategy, str], list[Predicted]] = {}
    for p in forecast.predictions:
        at = p.target
        if at.batch == batch:
            step, null = rate(at, p.step_s), rate(at, p.null_s)
            band = (rate(at, p.high_s), rate(at, p.low_s))
            point = Predicted(at.gpus, step, band, null, p.skill)
            by_line.setdefault((at.strategy, at.kind.treatment), []).append(point)
    rows = [row for row in group.timed if group.doubts(row, Affected.TIME)]
    doubtful = {slug for row in rows for slug in row.cells}
    for (strategy, treatment), predicted in by_line.items():
        points = []
        for o in forecast.observations:
            if _is_on_line(o, strategy, treatment, batch):
                is_doubtful = not doubtful.isdisjoint(o.cells)
                points.append(
                    Point(o.gpus, o.nodes, rate(o, o.step_s), None, is_doubtful)
                )
        predicted.sort(key=lambda point: point.gpus)
        yield PredictedLine(
            series.make(strategy.value, treatment, batch, points), predicted, unit
        )


def _is_on_line(
    observation: MeasuredPlace, strategy: Strategy, treatment: str, batch: int
) -> bool:
    """Return whether a place is on a line, which begins with the baseline on one GPU."""
    if (observation.batch, observation.kind.treatment) != (batch, treatment):
        return False
    is_baseline = observation.strategy is BASELINE and observation.gpus == 1
    return is_baseline or observation.strategy is strategy


def _draw_line(axis: Axes, line: PredictedLine, keys: series.Keys) -> None:
    """Draw what was measured, and from its last point below them what is predicted."""
    series.draw(axis, [line.measured], keys)
    colour = keys.look(line.measured).colour
    first = line.predicted[0]
    smaller = [p for p in line.measured.points if p.gpus < first.gpus]
    points = []  # size, rate, ends of the band, rate without a change
    for last in smaller[-1:]:
        rate = last.value
        points.append((last.gpus, rate, rate, rate, first.no_change))
    for p in line.predicted:
        points.append((p.gpus, p.rate, *p.band, p.no_change))
    sizes, rates, low, high, no_change = zip(*points, strict=True)
    axis.plot(sizes, rates, color=colour, marker="x", ms=4.5, **PREDICTED)
    axis.plot(sizes, no_change, **NO_CHANGE)
    axis.fill_between(sizes, low, high, color=colour, alpha=0.16, lw=0)
