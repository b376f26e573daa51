"""Picture of the throughput by GPUs: a panel for each batch, a line for each strategy."""

from collections.abc import Sequence

from hpml_jobs.checks.result import Affected
from hpml_jobs.core import formulas
from hpml_jobs.core.built_in import Unit
from hpml_jobs.report.frame import captions, series, style
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import count
from hpml_jobs.report.frame.picture import (
    Axes,
    Panel,
    Picture,
    batch_title,
    cut,
    logarithmic,
    panels,
)
from hpml_jobs.report.frame.rows import Place, Row, baseline_setup
from hpml_jobs.report.frame.series import Point, Series

MEASURED = (
    "{counted} of an epoch, padding of the sampler included, / seconds of the timed epoch, the "
    "longest of all ranks; medians over runs."
)
RATES = "Imported rates are as the source reports them, of all GPUs together."
CAPTION = (
    "Bars: intervals of the median, none with a single run. Dashed: the "
    "smallest size of the baseline times its growth. All panels have the same scale."
)

Batch = tuple[ConditionGroup, list[Series]]
"""The lines of one batch in a group."""


def throughput(groups: Sequence[ConditionGroup]) -> Picture | None:
    """Plot the throughput; None if no cell of several GPUs has one."""
    every = [
        Panel(batch_title(group, batch), (group, lines))
        for group in groups
        for batch in sorted({row.batch_per_gpu for row in group.timed})
        if (lines := _lines(group, batch))
    ]
    if len({_unit(panel) for panel in every}) > 1:
        every = [Panel(f"{panel.title}, {_unit(panel)}/s", panel.data) for panel in every]
    shown, missing = cut(every)
    units = dict.fromkeys(_unit(panel) for panel in shown)
    keys = series.keys(groups)
    drawn = [line for panel in shown for line in panel.data[1]]
    values = [point.value for line in drawn for point in line.points]

    def draw(axis: Axes, panel: Panel[Batch]) -> list[str]:
        group, lines = panel.data
        gpus = captions.units(group.device)
        series.draw(axis, lines[: series.LINES], keys)
        points = [point for line in lines for point in line.points]
        series.gpu_axis(axis, [point.gpus for point in points], gpus)
        first = min(points, key=lambda point: (point.gpus, -point.value))
        ends = axis.get_xlim()
        axis.plot(ends, [first.value * end / first.gpus for end in ends], **style.IDEAL)
        logarithmic(axis, "y", f"{_unit(panel)}/s")
        axis.set_ylim(min(values) / 1.4, max(values) * 1.4)
        return [
            f"{panel.title}, {line.name}: {count(round(line.points[-1].value))} at "
            f"{line.points[-1].gpus} {gpus}"
            for line in lines
        ]

    counted = "Samples, or their tokens," if Unit.TOKENS in units else "Samples"
    counted = "Tokens of the samples" if [*units] == [Unit.TOKENS] else counted
    from_rates = {bool(group.rate_units) for group in groups}
    measured = MEASURED.format(counted=counted) if False in from_rates else ""
    return panels(
        "Throughput",
        shown,
        draw,
        alt=f"Throughput in {' or '.join(f'{unit}/s' for unit in units)}, ",
        caption=[measured, RATES if True in from_rates else "", CAPTION],
        legend=series.legend(drawn, keys) | {"ideal": style.IDEAL},
        missing=missing + [of.label for panel in shown for of in panel.data[1][series.LINES :]],
        file="scaling.csv",
    )


def _unit(panel: Panel[Batch]) -> Unit:
    return panel.data[0].a_cell.workload.throughput_unit


def _lines(group: ConditionGroup, batch: int) -> list[Series]:
    """Return the lines of a batch, which begin at the single-GPU cell of their path.

    None if the batch was not measured with more than one GPU.
    """
    places: dict[tuple[str, str, str], list[Point]] = {}
    for row in group.timed:
        if row.batch_per_gpu == batch and (point := _point(group, row)):
            places.setdefault((row.strategy.value, row.treatment, row.path), []).append(point)
    lines = []
    for (strategy, treatment, path), points in places.items():
        begin = []
        if all(point.gpus > 1 for point in points):
            alone = (row for row in group.timed if row.place == Place(baseline_setup(path), batch))
            begin = [point for row in alone if (point := _point(group, row))][:1]
        lines.append(series.make(strategy, treatment, batch, [*begin, *points]))
    return lines if any(point.gpus > 1 for line in lines for point in line.points) else []


def _point(group: ConditionGroup, row: Row) -> Point | None:
    if row.timing is None or row.timing.units is None:
        return None
    units, interval = row.timing.units, row.epochs.interval
    if interval:
        low, high = (formulas.units_per_s(units, s) for s in (interval.high, interval.low))
        interval = interval._replace(low=low, high=high)
    value = formulas.units_per_s(units, row.timing.epoch_s)
    return Point(row.gpus, row.nodes, value, interval, group.doubts(row, Affected.TIME))
