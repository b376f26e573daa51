"""Picture of speedup and efficiency by GPUs: strong and weak scaling beside the ideal line."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from hpml_jobs.core.statistics import ratio_interval
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.plots import series, style
from hpml_jobs.report.plots.picture import Picture, listed, not_drawn, sentences
from hpml_jobs.report.plots.series import Keys, Point, Series
from hpml_jobs.report.report import Report
from hpml_jobs.report.tables import ratios
from hpml_jobs.report.tables.ratios import Ratio
from hpml_jobs.report.tables.repeats import epochs_of
from hpml_jobs.report.text import captions
from hpml_jobs.report.text.numbers import percent, ratio

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GROUPS = 3
"""The most groups in a picture."""

TITLE = "Speedup and efficiency"
CAPTION = (
    "Speedup: {time} of the smallest size / {time} of N {units}, at the same batch per {unit} "
    "(weak scaling) or the same global batch (strong scaling); efficiency: speedup / growth in "
    "{units}. E1, the longest of all ranks; medians over runs. Bars: bootstrap intervals of the "
    "ratio, none with a single run. Dashed: ideal."
)


class Kind(NamedTuple):
    """Strong or weak scaling: speedups and efficiencies of a group as lines."""

    title: str
    speedups: list[Series]
    efficiencies: list[Series]


def speedup(report: Report) -> Picture | None:
    """Plot speedup and efficiency; None without a cell to compare others with."""
    groups = [(group, kinds) for group in report.groups if (kinds := _kinds(group.source))]
    if not groups:
        return None
    shown = groups[:GROUPS]
    lines = [line for _, kinds in shown for kind in kinds for line in kind.speedups]
    keys = series.keys(report)
    figure, axes = style.panels(2 * sum(len(kinds) for _, kinds in shown), columns=2, height=2.5)
    free = list(axes)
    for group, kinds in shown:
        panels, free = free[: 2 * len(kinds)], free[2 * len(kinds) :]
        name = f"{report.name(group)}: " if report.several else ""
        units = captions.units(group.source.device)
        for number, kind in enumerate(kinds):  # speedups above efficiencies, if there are both
            above, below = panels[number :: len(kinds)]
            above.set_title(f"{name}{kind.title}", loc="left")
            _draw(above, kind.speedups, keys, units)
            _draw(below, kind.efficiencies, keys, units)
            _label(above, below, min(line.points[0].gpus for line in kind.speedups))
    entries = series.legend(lines, keys, "batch")
    style.entries(figure, entries | {"ideal": style.ideal()})
    missing = [report.name(group) for group, _ in groups[GROUPS:]]
    kinds_shown = [kind for _, kinds in shown for kind in kinds]
    missing += [line.label for kind in kinds_shown for line in series.beyond(kind.speedups)]
    device = shown[0][0].source.device
    works = {group.source.work for group in report.groups}
    time = captions.time_word(works.pop()) if len(works) == 1 else "time"
    caption = CAPTION.format(time=time, unit=captions.unit(device), units=captions.units(device))
    caption = sentences(caption, not_drawn(missing, "scaling.csv"))
    return Picture(TITLE, figure, _alt(kinds_shown), caption)


def _kinds(group: ConditionGroup) -> list[Kind]:
    """Return strong and weak scaling, without the one that the grid has no cells for."""
    unit = captions.unit(group.device)
    kinds = {
        "strong scaling: same global batch": ratios.strong(group),
        f"weak scaling: same batch per {unit}": ratios.weak(group),
    }
    return [_kind(group, title, members) for title, members in kinds.items() if members]


def _kind(group: ConditionGroup, title: str, of_kind: Sequence[Ratio]) -> Kind:
    """Return ratios as lines that begin at their baseline."""
    speedups, efficiencies = [], []
    for name, members in ratios.lines(of_kind).items():
        start = members[0].reference
        has_start = any(r.row.gpus == start.gpus for r in members)
        begins = [] if has_start else [Point(start.gpus, start.nodes, 1.0)]
        points = [_point(group, r, r.speedup) for r in members]
        shares = [_point(group, r, r.efficiency) for r in members]
        speedups.append(series.make(*name, [*begins, *points]))
        efficiencies.append(series.make(*name, [*begins, *shares]))
    return Kind(title, speedups, efficiencies)


def _point(group: ConditionGroup, of: Ratio, value: float) -> Point:
    """Return a speedup or an efficiency with the interval of the ratio on the same scale."""
    interval = ratio_interval(epochs_of(of.reference).runs, epochs_of(of.row).runs)
    if interval:
        interval = interval.divided_by(of.speedup / value)
    is_doubtful = group.doubts_ratio(of.row, of.reference)
    return Point(of.row.gpus, of.row.nodes, value, interval, is_doubtful)


def _draw(axis: "Axes", lines: Sequence[Series], keys: Keys, units: str) -> None:
    shown = lines[: series.LINES]
    series.draw(axis, shown, keys)
    series.gpu_axis(axis, [point.gpus for line in shown for point in line.points], units)


def _label(above: "Axes", below: "Axes", smallest: int) -> None:
    """Set the y axes, and draw the ideal lines over the whole width."""
    ends = above.get_xlim()
    above.set_ylabel("speedup")
    style.by_two(above)
    above.plot(ends, [end / smallest for end in ends], **style.IDEAL)
    below.set_ylabel("efficiency")
    below.set_ylim(0, max(1.08, below.get_ylim()[1]))
    below.plot(ends, [1, 1], **style.IDEAL)


def _alt(kinds: Sequence[Kind]) -> str:
    """Return the speedup and the efficiency of every line at its largest size."""
    texts = []
    for kind in kinds:
        what = kind.title.partition(":")[0]
        for line, shares in zip(kind.speedups, kind.efficiencies, strict=True):
            end, share = line.points[-1], shares.points[-1]
            texts.append(
                f"{what}, {line.label}: {ratio(end.value)} at {end.gpus} (efficiency "
                f"{percent(share.value)} %)"
            )
    return f"Speedup: {listed(texts, '; ')}."
