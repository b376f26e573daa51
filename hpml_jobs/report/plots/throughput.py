"""Picture of the throughput by GPUs: a panel for each batch, a line for each strategy."""

from typing import NamedTuple

from hpml_jobs.checks.result import Affected
from hpml_jobs.core import formulas
from hpml_jobs.core.built_in import Unit
from hpml_jobs.core.statistics import Interval
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.rows import Place, Row, baseline_setup
from hpml_jobs.report.plots import series, style
from hpml_jobs.report.plots.picture import Picture, listed, not_drawn, sentences
from hpml_jobs.report.plots.series import Point, Series
from hpml_jobs.report.report import Report, ReportGroup
from hpml_jobs.report.tables.repeats import epochs_of
from hpml_jobs.report.text import captions
from hpml_jobs.report.text.numbers import count

MEASURED = (
    "{counted} of an epoch, padding of the sampler included, / seconds of E1, the longest of all "
    "ranks; medians over runs."
)
RATES = "Imported rates are as the source reports them, of all GPUs together."
CAPTION = (
    "Bars: intervals of the median, none with a single run. Dashed: the "
    "smallest size of the baseline times its growth. All panels have the same scale."
)


class Panel(NamedTuple):
    """The lines of one batch in one group."""

    title: str
    units: str
    unit: Unit
    lines: list[Series]


def throughput(report: Report) -> Picture | None:
    """Plot the throughput; None if no cell of several GPUs has one."""
    panels = [panel for group in report.groups for panel in _panels(report, group)]
    if not panels:
        return None
    if len({panel.unit for panel in panels}) > 1:
        panels = [panel._replace(title=f"{panel.title}, {panel.unit}/s") for panel in panels]
    shown, keys = panels[: style.PANELS], series.keys(report)
    figure, axes = style.panels(len(shown), columns=style.even(len(shown), 3))
    values = [p.value for panel in shown for line in panel.lines for p in line.points]
    for axis, panel in zip(axes, shown, strict=True):
        axis.set_title(panel.title, loc="left")
        series.draw(axis, panel.lines[: series.LINES], keys)
        points = [point for line in panel.lines for point in line.points]
        series.gpu_axis(axis, [point.gpus for point in points], panel.units)
        first = min(points, key=lambda point: (point.gpus, -point.value))
        ends = axis.get_xlim()
        axis.plot(ends, [first.value * end / first.gpus for end in ends], **style.IDEAL)
        style.by_ratio(axis)
        axis.set_ylim(min(values) / 1.4, max(values) * 1.4)
    for axis in style.left_ones(axes):
        axis.set_ylabel(_unit_text(shown))
    lines = [line for panel in shown for line in panel.lines]
    style.entries(figure, series.legend(lines, keys, batch="") | {"ideal": style.ideal()})
    missing = [panel.title for panel in panels[len(shown) :]]
    missing += [line.label for panel in shown for line in series.beyond(panel.lines)]
    from_rates = {bool(group.source.rate_units) for group in report.groups}
    measured = MEASURED.format(counted=_counted(shown))
    how = [measured] * (False in from_rates) + [RATES] * (True in from_rates)
    caption = sentences(*how, CAPTION, not_drawn(missing, "scaling.csv"))
    return Picture("Throughput", figure, _alt(shown), caption)


def _panels(report: Report, group: ReportGroup) -> list[Panel]:
    """Return a panel for each batch that was measured with more than one GPU."""
    source = group.source
    panels = []
    for batch in sorted({row.batch_per_gpu for row in source.timed}):
        places: dict[tuple[str, str, str], list[Point]] = {}
        for row in source.timed:
            if row.batch_per_gpu == batch and (point := _point(source, row)):
                name = row.strategy.value, row.treatment, row.path
                places.setdefault(name, []).append(point)
        lines = [
            series.make(
                strategy,
                treatment,
                batch,
                _from_reference(source, Place(baseline_setup(path), batch), points),
            )
            for (strategy, treatment, path), points in places.items()
        ]
        if any(point.gpus > 1 for line in lines for point in line.points):
            title = f"batch {batch} per {captions.unit(source.device)}"
            title = f"{report.name(group)}, {title}" if report.several else title
            units = captions.units(source.device)
            panels.append(Panel(title, units, source.a_cell.workload.throughput_unit, lines))
    return panels


def _from_reference(group: ConditionGroup, place: Place, points: list[Point]) -> list[Point]:
    """Return points with the single-GPU cell before them, where they have none of its size."""
    alone = [row for row in group.timed if row.place == place]
    if not alone or any(point.gpus == 1 for point in points):
        return points
    start = _point(group, alone[0])
    return [start, *points] if start else points


def _point(group: ConditionGroup, row: Row) -> Point | None:
    if row.timing is None or row.timing.units is None:
        return None
    units = row.timing.units
    interval = epochs_of(row).interval
    if interval:
        ends = (formulas.units_per_s(units, end) for end in (interval.high, interval.low))
        interval = Interval(next(ends), next(ends), interval.coverage)
    value = formulas.units_per_s(units, row.timing.epoch_s)
    return Point(row.gpus, row.nodes, value, interval, group.doubts(row, Affected.TIME))


def _alt(panels: list[Panel]) -> str:
    """Return the throughput of every line at its largest size."""
    texts = [
        f"{panel.title}, {line.name}: {count(round(line.points[-1].value))} at "
        f"{line.points[-1].gpus} {panel.units}"
        for panel in panels
        for line in panel.lines
    ]
    return f"Throughput in {_unit_text(panels)}, {listed(texts, '; ')}."


def _unit_text(panels: list[Panel]) -> str:
    """Return the unit of all panels, `images/s`, or `images/s or tokens/s`."""
    return " or ".join(dict.fromkeys(f"{panel.unit.value}/s" for panel in panels))


def _counted(panels: list[Panel]) -> str:
    """Return what is divided by the seconds of an epoch."""
    units = {panel.unit for panel in panels}
    if units == {Unit.TOKENS}:
        return "Tokens of the samples"
    return "Samples, or their tokens," if Unit.TOKENS in units else "Samples"
