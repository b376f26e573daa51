"""Picture of speedup and efficiency by GPUs: strong and weak scaling beside the ideal line."""

from collections.abc import Sequence
from typing import NamedTuple

from hpml_jobs.core.statistics import ratio_interval
from hpml_jobs.report.frame import captions, series, style
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import percent, ratio
from hpml_jobs.report.frame.picture import Axes, Panel, Picture, logarithmic, named, panels
from hpml_jobs.report.frame.series import Point, Series
from hpml_jobs.report.repeats.table import epochs_of
from hpml_jobs.report.report import Report
from hpml_jobs.report.scaling import ratios
from hpml_jobs.report.scaling.ratios import Ratio

GROUPS = 3
"""The most groups in a picture."""

CAPTION = (
    "Speedup: {time} of the smallest size / {time} of N {units}, at the same batch per {unit} "
    "(weak scaling) or the same global batch (strong scaling); efficiency: speedup / growth in "
    "{units}. Timed epoch, the longest of all ranks; medians over runs. Bars: bootstrap intervals "
    "of the ratio, none with a single run. Dashed: ideal."
)


class Scaling(NamedTuple):
    """Strong or weak scaling of a group as lines: their speedups, and their efficiencies."""

    kind: str
    at_the_same: str
    units: str
    speedups: list[Series]
    efficiencies: list[Series]


def speedup(report: Report) -> Picture | None:
    """Plot speedup and efficiency; None without a cell to compare others with."""
    groups = [(g, scalings) for g in report.groups if (scalings := _scalings(g.source))]
    if not groups:
        return None
    keys = series.keys(report)
    drawn: list[Panel[tuple[Scaling, bool]]] = []
    for group, scalings in groups[:GROUPS]:  # speedups above efficiencies, if there are both kinds
        for of in scalings:
            title = named(report, group, f"{of.kind}: same {of.at_the_same}")
            drawn.append(Panel(title, (of, True)))
        drawn += [Panel("", (of, False)) for of in scalings]

    def draw(axis: Axes, panel: Panel[tuple[Scaling, bool]]) -> list[str]:
        of, is_speedup = panel.data
        lines = (of.speedups if is_speedup else of.efficiencies)[: series.LINES]
        series.draw(axis, lines, keys)
        gpus = [point.gpus for line in lines for point in line.points]
        series.gpu_axis(axis, gpus, of.units)
        ends = axis.get_xlim()
        if not is_speedup:
            axis.set_ylabel("efficiency")
            axis.set_ylim(0, max(1.08, axis.get_ylim()[1]))
            axis.plot(ends, [1, 1], **style.IDEAL)
            return []
        logarithmic(axis, "y", "speedup", at=(1,), base=2)
        axis.plot(ends, [end / min(gpus) for end in ends], **style.IDEAL)
        return [
            f"{of.kind}, {line.label}: {ratio(line.points[-1].value)} at {line.points[-1].gpus} "
            f"(efficiency {percent(shares.points[-1].value)} %)"
            for line, shares in zip(of.speedups, of.efficiencies, strict=True)
        ]

    scalings = [panel.data[0] for panel in drawn if panel.data[1]]
    lines = [line for of in scalings for line in of.speedups]
    missing = [report.name(group) for group, _ in groups[GROUPS:]]
    missing += [line.label for of in scalings for line in of.speedups[series.LINES :]]
    works = {group.source.work for group in report.groups}
    time = captions.time_word(works.pop()) if len(works) == 1 else "time"
    device = groups[0][0].source.device
    gpu, gpus = captions.unit(device), captions.units(device)
    return panels(
        "Speedup and efficiency",
        drawn,
        draw,
        alt="Speedup: ",
        caption=[CAPTION.format(time=time, unit=gpu, units=gpus)],
        legend=series.legend(lines, keys, "batch") | {"ideal": style.IDEAL},
        missing=missing,
        file="scaling.csv",
        columns=2,
        height=2.5,
    )


def _scalings(group: ConditionGroup) -> list[Scaling]:
    """Return strong and weak scaling, without the one that the grid has no cells for."""
    unit, units = captions.unit(group.device), captions.units(group.device)
    return [
        Scaling(kind, at_the_same, units, *_lines(group, members))
        for kind, at_the_same, members in (
            ("strong scaling", "global batch", ratios.strong(group)),
            ("weak scaling", f"batch per {unit}", ratios.weak(group)),
        )
        if members
    ]


def _lines(group: ConditionGroup, of_kind: Sequence[Ratio]) -> tuple[list[Series], list[Series]]:
    """Return ratios as lines of speedup and of efficiency, which begin at their baseline."""
    speedups, efficiencies = [], []
    for name, members in ratios.lines(of_kind).items():
        start = members[0].reference
        has_start = any(r.row.gpus == start.gpus for r in members)
        begins = [] if has_start else [Point(start.gpus, start.nodes, 1.0)]
        points = [_point(group, r, r.speedup) for r in members]
        shares = [_point(group, r, r.efficiency) for r in members]
        speedups.append(series.make(*name, [*begins, *points]))
        efficiencies.append(series.make(*name, [*begins, *shares]))
    return speedups, efficiencies


def _point(group: ConditionGroup, of: Ratio, value: float) -> Point:
    """Return a speedup or an efficiency with the interval of the ratio on the same scale."""
    interval = ratio_interval(epochs_of(of.reference).runs, epochs_of(of.row).runs)
    if interval:
        interval = interval.divided_by(of.speedup / value)
    is_doubtful = group.doubts_ratio(of.row, of.reference)
    return Point(of.row.gpus, of.row.nodes, value, interval, is_doubtful)
