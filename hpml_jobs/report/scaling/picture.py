"""Picture of speedup by GPUs."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple

from hpml_jobs.core.text import percent_text
from hpml_jobs.report.frame import captions, series, style
from hpml_jobs.report.frame.numbers import three_digits
from hpml_jobs.report.frame.picture import (
    Axes,
    Panel,
    Picture,
    logarithmic,
    named,
    panels,
)
from hpml_jobs.report.frame.series import Point, Series
from hpml_jobs.results.groups import ConditionGroup, Pair, pairs
from hpml_jobs.results.rows import Row, by_key, speedup_interval

GROUPS = 3
"""The most groups in a picture."""

SPEEDUP_CAPTION = (
    "Speedup: {time} of the smallest size / {time} of N {units}, at the same batch per {unit} "
    "(weak scaling) or the same global batch (strong scaling). Timed epoch, the longest of all "
    "ranks; medians over runs. Bars: intervals of the ratio. Dashed: ideal."
)


class ScalingLines(NamedTuple):
    """Strong or weak scaling of a group: a line of speedups per strategy and batch."""

    kind: str
    at_the_same: str
    units: str
    speedups: list[Series]


def speedup(groups: Sequence[ConditionGroup]) -> Picture | None:
    """Plot speedups; None without a cell to compare others with."""
    scaled = [(group, scalings) for group in groups if (scalings := _scalings(group))]
    if not scaled:
        return None
    keys = series.keys(groups)
    drawn = [
        Panel(named(group, f"{scaling.kind}, by {scaling.at_the_same}"), scaling)
        for group, scalings in scaled[:GROUPS]
        for scaling in scalings
    ]
    speedups = [panel.data.speedups for panel in drawn]
    lines = [line for of_panel in speedups for line in of_panel]
    left_out = [
        line.label for of_panel in speedups for line in of_panel[series.LINES :]
    ]
    works = {group.work for group in groups}
    time = captions.time_word(works.pop()) if len(works) == 1 else "time"
    device = scaled[0][0].device
    gpu = captions.unit(device)
    gpus = captions.units(device)
    return panels(
        "Speedup",
        drawn,
        lambda axis, panel: _draw(axis, panel.data, keys),
        alt="Speedup: ",
        caption=[SPEEDUP_CAPTION.format(time=time, unit=gpu, units=gpus)],
        legend=series.legend(lines, keys, "batch") | {"ideal": style.IDEAL},
        missing=[group.name for group, _ in scaled[GROUPS:]] + left_out,
        file="scaling.csv",
        columns=2,
        height=2.5,
    )


def _draw(axis: Axes, scaling: ScalingLines, keys: series.Keys) -> list[str]:
    """Draw speedups; return the largest of each line in words."""
    lines = scaling.speedups[: series.LINES]
    series.draw(axis, lines, keys)
    gpus = [point.gpus for line in lines for point in line.points]
    series.gpu_axis(axis, gpus, scaling.units)
    logarithmic(axis, "y", "speedup", at=(1, 1.5), base=2)
    ends = axis.get_xlim()
    axis.plot(ends, [end / min(gpus) for end in ends], **style.IDEAL)
    texts = []
    for line in scaling.speedups:
        first, largest = line.points[0], line.points[-1]
        ideal = largest.gpus / first.gpus
        shown = f"{three_digits(largest.value)} on {largest.gpus} {scaling.units}"
        share = percent_text(largest.value / ideal, 1)
        text = captions.mark(shown, is_doubtful=largest.is_doubtful)
        texts.append(f"{scaling.kind}, {line.label}: {text} (efficiency {share})")
    return texts


def _scalings(group: ConditionGroup) -> list[ScalingLines]:
    """Return strong and weak scaling, without the one that the grid has no cells for."""
    unit = captions.unit(group.device)
    units = captions.units(group.device)
    rows = [row for row in group.timed if row.setup.is_plain] or group.timed
    weak = [
        Pair(reference, row)
        for row in rows
        if (reference := group.reference(row)) and reference is not row
        if row.gpus >= reference.gpus
    ]
    return [
        ScalingLines(kind, at_the_same, units, _speedup_lines(group, members, batch_of))
        for kind, at_the_same, members, batch_of in (
            (
                "strong scaling",
                "global batch",
                [pair for pair in pairs(group) if pair.parallel in rows],
                attrgetter("global_batch"),
            ),
            ("weak scaling", f"batch per {unit}", weak, attrgetter("batch_per_gpu")),
        )
        if members
    ]


def _speedup_lines(
    group: ConditionGroup, of_kind: Sequence[Pair], batch_of: Callable[[Row], int]
) -> list[Series]:
    """Return pairs as lines of speedup, which begin at their baseline."""
    rows = [(pair, pair.parallel) for pair in of_kind]
    by_line = by_key(
        ((row.strategy.value, row.treatment, batch_of(row)), pair) for pair, row in rows
    )
    speedups = []
    for line, members in by_line.items():
        start = members[0].reference
        points = [_point(group, pair) for pair in members]
        if all(point.gpus != start.gpus for point in points):
            is_doubtful = group.doubts_ratio(start, start)
            points.insert(0, Point(start.gpus, start.nodes, 1.0, None, is_doubtful))
        speedups.append(series.make(*line, points))
    return speedups


def _point(group: ConditionGroup, pair: Pair) -> Point:
    row = pair.parallel
    reference = pair.reference
    interval = speedup_interval(reference, row)
    is_doubtful = group.doubts_ratio(row, reference)
    return Point(row.gpus, row.nodes, pair.speedup, interval, is_doubtful)
