"""Picture of speedup and efficiency by GPUs."""

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from hpml_jobs.core.statistics import ratio_interval
from hpml_jobs.core.text import percent_text
from hpml_jobs.report.frame import captions, series, style
from hpml_jobs.report.frame.numbers import percent, three_digits
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
from hpml_jobs.results.rows import Row, by_key

GROUPS = 3
"""The most groups in a picture."""

SPEEDUP_CAPTION = (
    "Speedup: {time} of the smallest size / {time} of N {units}, at the same batch per {unit} "
    "(weak scaling) or the same global batch (strong scaling); efficiency: speedup / ideal. Timed "
    "epoch, the longest of all ranks; medians over runs. Bars: bootstrap intervals of the ratio, "
    "none with a single run. Dashed: ideal."
)


class ScalingLines(NamedTuple):
    """Strong or weak scaling of a group as lines: their speedups, and their efficiencies."""

    kind: str
    at_the_same: str
    units: str
    speedups: list[Series]
    efficiencies: list[Series]


def speedup(groups: Sequence[ConditionGroup]) -> Picture | None:
    """Plot speedup and efficiency; None without a cell to compare others with."""
    scaled = [(group, scalings) for group in groups if (scalings := _scalings(group))]
    if not scaled:
        return None
    keys = series.keys(groups)
    drawn: list[Panel[tuple[ScalingLines, bool]]] = []
    # speedups above efficiencies, if there are both kinds
    for group, scalings in scaled[:GROUPS]:
        for scaling in scalings:
            title = named(group, f"{scaling.kind}, by {scaling.at_the_same}")
            drawn.append(Panel(title, (scaling, True)))
        for scaling in scalings:
            title = named(group, f"{scaling.kind}, efficiency")
            drawn.append(Panel(title, (scaling, False)))
    speedups = [scaling.speedups for _, (scaling, is_speedup) in drawn if is_speedup]
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
        "Speedup and efficiency",
        drawn,
        lambda axis, panel: _draw(axis, *panel.data, keys),
        alt="Speedup: ",
        caption=[SPEEDUP_CAPTION.format(time=time, unit=gpu, units=gpus)],
        legend=series.legend(lines, keys, "batch") | {"ideal": style.IDEAL},
        missing=[group.name for group, _ in scaled[GROUPS:]] + left_out,
        file="scaling.csv",
        columns=2,
        height=2.5,
    )


def _draw(
    axis: Axes, scaling: ScalingLines, is_speedup: bool, keys: series.Keys
) -> list[str]:
    """Draw speedups, or efficiencies; return the largest speedups in words."""
    lines = (scaling.speedups if is_speedup else scaling.efficiencies)[: series.LINES]
    series.draw(axis, lines, keys)
    gpus = [point.gpus for line in lines for point in line.points]
    series.gpu_axis(axis, gpus, scaling.units)
    ends = axis.get_xlim()
    if not is_speedup:
        axis.set_ylabel("efficiency")
        axis.yaxis.set_major_formatter(lambda share, _: percent_text(share, 0))
        axis.set_ylim(0, max(1.08, axis.get_ylim()[1]))
        axis.plot(ends, [1, 1], **style.IDEAL)
        return []
    logarithmic(axis, "y", "speedup", at=(1, 1.5), base=2)
    axis.plot(ends, [end / min(gpus) for end in ends], **style.IDEAL)
    texts = []
    for line, shares in zip(scaling.speedups, scaling.efficiencies, strict=True):
        largest = line.points[-1]
        share = shares.points[-1]
        marked = partial(captions.mark, is_doubtful=largest.is_doubtful)
        texts.append(
            f"{scaling.kind}, {line.label}: {marked(three_digits(largest.value))} on "
            f"{largest.gpus} {scaling.units} (efficiency {marked(percent(share.value))} %)"
        )
    return texts


def _scalings(group: ConditionGroup) -> list[ScalingLines]:
    """Return strong and weak scaling, without the one that the grid has no cells for."""
    unit = captions.unit(group.device)
    units = captions.units(group.device)
    weak = [
        Pair(reference, row)
        for row in group.timed
        if (reference := group.reference(row)) and reference is not row
        if row.gpus >= reference.gpus
    ]
    return [
        ScalingLines(
            kind, at_the_same, units, *_speedup_lines(group, members, batch_of)
        )
        for kind, at_the_same, members, batch_of in (
            (
                "strong scaling",
                "global batch",
                pairs(group),
                attrgetter("global_batch"),
            ),
            ("weak scaling", f"batch per {unit}", weak, attrgetter("batch_per_gpu")),
        )
        if members
    ]


def _speedup_lines(
    group: ConditionGroup, of_kind: Sequence[Pair], batch_of: Callable[[Row], int]
) -> tuple[list[Series], list[Series]]:
    """Return pairs as lines of speedup and of efficiency, which begin at their baseline."""
    rows = [(pair, pair.parallel) for pair in of_kind]
    by_line = by_key(
        ((row.strategy.value, row.treatment, batch_of(row)), pair) for pair, row in rows
    )
    speedups = []
    efficiencies = []
    for line, members in by_line.items():
        start = members[0].reference
        has_start = any(pair.parallel.gpus == start.gpus for pair in members)
        is_doubtful = group.doubts_ratio(start, start)
        first_point = Point(start.gpus, start.nodes, 1.0, None, is_doubtful)
        begins = [] if has_start else [first_point]
        points = [_ratio_point(group, pair, pair.speedup) for pair in members]
        shares = [_ratio_point(group, pair, pair.efficiency) for pair in members]
        speedups.append(series.make(*line, [*begins, *points]))
        efficiencies.append(series.make(*line, [*begins, *shares]))
    return speedups, efficiencies


def _ratio_point(group: ConditionGroup, pair: Pair, value: float) -> Point:
    """Return a speedup or an efficiency with the interval of the ratio on the same scale."""
    row = pair.parallel
    reference = pair.reference
    interval = ratio_interval(reference.epochs.runs, row.epochs.runs)
    if interval:
        interval = interval.divided_by(pair.speedup / value)
    return Point(
        row.gpus, row.nodes, value, interval, group.doubts_ratio(row, reference)
    )
