"""Picture of speedup by GPUs: a line for each strategy, treatment and batch."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from hpml_jobs.core.text import percent_text
from hpml_jobs.report.frame import captions, style
from hpml_jobs.report.frame.numbers import three_digits
from hpml_jobs.report.frame.picture import (
    Axes,
    Entry,
    Panel,
    Picture,
    logarithmic,
    named,
    panels,
)
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Pair, Row, by_key

GROUPS = 3
"""The most groups in a picture."""

LINES = 24
"""The most lines in a panel."""

CAPTION = (
    "Speedup: time of the smallest size / time of N {units}, at the same batch per {unit} "
    "(weak scaling) or the same global batch (strong scaling). Timed epoch, the longest of all "
    "ranks; medians over runs. Bars: intervals of the ratio. Hollow: doubtful. Dashed: ideal."
)


class Line(NamedTuple):
    """The speedups of one strategy, treatment and batch, by growing numbers of GPUs."""

    strategy: str
    treatment: str
    batch: int
    points: list[Pair]

    @property
    def label(self) -> str:
        """Its strategy, treatment and batch."""
        treatment = f" ({self.treatment})" if self.treatment else ""
        return f"{self.strategy}{treatment} b{self.batch}"


class ScalingLines(NamedTuple):
    """Strong or weak scaling of a group: a line of speedups per strategy and batch."""

    kind: str
    at_the_same: str
    units: str
    lines: list[Line]


def speedup(groups: Sequence[ConditionGroup]) -> Picture | None:
    """Plot speedups; None without a cell to compare others with."""
    scaled = [(group, scalings) for group in groups if (scalings := _scalings(group))]
    if not scaled:
        return None
    drawn = [
        Panel(named(group, f"{scaling.kind}, by {scaling.at_the_same}"), scaling)
        for group, scalings in scaled[:GROUPS]
        for scaling in scalings
    ]
    shown = [line for panel in drawn for line in panel.data.lines[:LINES]]
    left_out = [line.label for panel in drawn for line in panel.data.lines[LINES:]]
    looks = _looks(shown)
    legend: dict[str, Entry] = {
        label: look.line | {"ms": 4.5} for label, look in looks.items()
    }
    device = scaled[0][0].device
    gpu = captions.unit(device)
    gpus = captions.units(device)
    return panels(
        "Speedup",
        drawn,
        partial(_draw, looks=looks),
        alt="Speedup: ",
        caption=[CAPTION.format(unit=gpu, units=gpus)],
        legend=legend | {"ideal": style.IDEAL},
        missing=[group.name for group, _ in scaled[GROUPS:]] + left_out,
        file="scaling.csv",
        columns=2,
        height=2.5,
    )


def _looks(lines: Sequence[Line]) -> dict[str, style.Look]:
    """Return the look of each line by its label: colours tell strategies apart, or else batches."""
    batches = sorted({line.batch for line in lines})
    treatments = sorted({line.treatment for line in lines})
    has_one_strategy = len({line.strategy for line in lines}) == 1
    looks = {}
    for line in sorted(lines, key=lambda line: line[:3]):
        number = batches.index(line.batch)
        colour = style.strategy_colour(line.strategy)
        if has_one_strategy and len(batches) > 1:
            colour = style.COLOURS[number % len(style.COLOURS)]
        dashes = style.DASHES[treatments.index(line.treatment) % len(style.DASHES)]
        marker = style.MARKERS[number % len(style.MARKERS)]
        looks[line.label] = style.Look(colour, dashes, marker)
    return looks


def _draw(
    axis: Axes, panel: Panel[ScalingLines], *, looks: dict[str, style.Look]
) -> list[str]:
    """Draw speedups, each line a little aside; return the largest of each in words."""
    scaling = panel.data
    lines = scaling.lines[:LINES]
    step = min(0.025, 0.15 / len(lines))
    for number, line in enumerate(lines):
        _draw_line(axis, line, looks[line.label], 1 + step * number)
    sizes = sorted({point.parallel.gpus for line in lines for point in line.points})
    logarithmic(axis, "x", scaling.units)
    axis.set_xticks(sorted({*sizes, min(2 * sizes[0], sizes[-1])}))
    axis.set_xlim(sizes[0] / 1.25, sizes[-1] * 1.25)
    logarithmic(axis, "y", "speedup", at=(1, 1.5), base=2)
    ends = axis.get_xlim()
    axis.plot(ends, [end / sizes[0] for end in ends], **style.IDEAL)
    texts = []
    for line in scaling.lines:
        first, largest = line.points[0].parallel.gpus, line.points[-1]
        gpus = largest.parallel.gpus
        shown = f"{three_digits(largest.speedup)} on {gpus} {scaling.units}"
        share = percent_text(largest.speedup / (gpus / first), 1)
        text = captions.mark(shown, is_doubtful=largest.is_doubtful)
        texts.append(f"{scaling.kind}, {line.label}: {text} (efficiency {share})")
    return texts


def _draw_line(axis: Axes, line: Line, look: style.Look, aside: float) -> None:
    """Draw a line of the fewest nodes for each number of GPUs, and points of more nodes."""
    fewest = {point.parallel.gpus: point for point in reversed(line.points)}
    joined = [point for point in line.points if fewest[point.parallel.gpus] is point]
    at = [point.parallel.gpus * aside for point in joined]
    axis.plot(at, [point.speedup for point in joined], **look.line, ms=4.5, lw=1.4)
    for point in line.points:
        x = point.parallel.gpus * aside
        face: Any = {"marker": look.marker, "ms": 4.5, "color": look.colour}
        if point.is_doubtful:
            axis.plot([x], [point.speedup], **face, mfc=style.PAPER)
        elif point not in joined:
            axis.plot([x], [point.speedup], **face)
        if point not in joined:
            axis.annotate(f"{point.parallel.nodes} nodes", (x, point.speedup), size=7)
        interval = point.interval
        if interval and interval.high > interval.low > 0:
            axis.vlines(x, interval.low, interval.high, color=look.colour, lw=1)


def _scalings(group: ConditionGroup) -> list[ScalingLines]:
    """Return strong and weak scaling, without the one that the grid has no cells for."""
    unit = captions.unit(group.device)
    units = captions.units(group.device)
    rows = [row for row in group.timed if row.setup.is_plain] or group.timed
    strong = [pair for pair in group.pairs if pair.parallel in rows]
    weak = [
        row.pair
        for row in rows
        if row.pair and row.is_compared and row.gpus >= row.pair.reference.gpus
    ]
    scalings = []
    if strong:
        lines = _lines(strong, attrgetter("global_batch"))
        scalings.append(ScalingLines("strong scaling", "global batch", units, lines))
    if weak:
        lines = _lines(weak, attrgetter("batch_per_gpu"))
        by_batch = f"batch per {unit}"
        scalings.append(ScalingLines("weak scaling", by_batch, units, lines))
    return scalings


def _lines(of_kind: Iterable[Pair], batch_of: Callable[[Row], int]) -> list[Line]:
    """Return pairs as lines of speedup, which begin at their baseline."""
    rows = [(pair, pair.parallel) for pair in of_kind]
    by_line = by_key(
        ((row.strategy.value, row.treatment, batch_of(row)), pair) for pair, row in rows
    )
    lines = []
    for line, points in by_line.items():
        start = points[0].reference
        if all(point.parallel.gpus != start.gpus for point in points):
            points.append(Pair(start, start))
        points.sort(key=lambda point: (point.parallel.gpus, point.parallel.nodes))
        lines.append(Line(*line, points))
    return lines
