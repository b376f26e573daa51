"""Scaling: the table of times and ratios, weak and strong, and the picture of speedups."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, NamedTuple, Self

import msgspec

from hpml_jobs.core.value import by_key
from hpml_jobs.report.frame import captions, picture
from hpml_jobs.report.frame.numbers import (
    count,
    per_second,
    seconds,
    share_text,
    three_digits,
)
from hpml_jobs.report.frame.picture import (
    Axes,
    Entry,
    Panel,
    Picture,
    logarithmic,
    panels,
)
from hpml_jobs.report.frame.table import (
    Column,
    Number,
    Table,
    TableText,
    columns_of,
    left_out,
    line_from,
    line_table,
)
from hpml_jobs.results.cells import Place
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Pair, Row, Scaling

AGAINST = (
    "Speedup: time on 1 {unit}, or the fewest {units}, / time on N, at the same batch per {unit}; "
    "efficiency: speedup / ideal."
)
MEASURED = "Time: of the slowest process; train, data wait: of the one that waits most for batches"
WINDOW = (
    "Time: seconds of {work} at the rate of the timed window, of the slowest process; train + "
    "data wait = time"
)
REPORTED = "As reported by the source: time = train + data wait"


def scaling(group: ConditionGroup) -> Table | None:
    """Return time, throughput and every ratio to the baseline; None without any number."""
    if not group.timed:
        return None
    rows = group.timed
    strong = {pair.parallel.place: pair for pair in group.pairs}
    caption = (
        f"{_how_measured(group)}. {_with_units(group, AGAINST)}",
        _with_units(group, STRONG) if strong else "",
        captions.runs(group.rows),
    )
    text = TableText("scaling", "Scaling", "", caption)
    heads = columns_of(
        ScalingLine,
        without=() if strong else STRONG_FIELDS,
        unit=group.a_cell.workload.throughput_unit.value,
        against=captions.against(rows, group.device),
        against_global=captions.against(rows, group.device, "global batch"),
    )
    notes = left_out(group, "", (row for row in group.rows if not row.timing))
    return line_table(group, text, list(_lines(group, strong)), heads, notes)


def _how_measured(group: ConditionGroup) -> str:
    """Return what the times are."""
    if group.work:
        return WINDOW.format(work=captions.work_text(group.work))
    return MEASURED if group.origin.has_ranks else REPORTED


def _with_units(group: ConditionGroup, text: str) -> str:
    return text.format(
        unit=captions.unit(group.device),
        units=captions.units(group.device),
    )


class ScalingLine(NamedTuple):
    """Seconds, throughput and ratios of a row.

    `reference_gpus` is what the ratios at the same batch are against, `strong_reference_gpus` those
    at the same global batch.
    """

    epoch_s: Annotated[float, Column("time", seconds, "seconds")]
    train_s: Annotated[Number, Column("train", seconds, "seconds")]
    stall_s: Annotated[Number, Column("data wait", seconds, "seconds")]
    step_s: Number
    units_per_s: Annotated[Number, Column("{unit}/s", per_second)]
    unit: str
    speedup: Annotated[
        Number, Column("speedup", three_digits, "{against}", doubt="is_doubtful")
    ]
    efficiency: Annotated[
        Number, Column("efficiency", share_text, "{against}", doubt="is_doubtful")
    ]
    weak_efficiency: Number
    cost_per_compute: Number
    reference_gpus: int | None
    global_batch: int
    strong_speedup: Annotated[
        Number,
        Column("speedup", three_digits, "{against_global}", doubt="doubts_strong"),
    ]
    strong_efficiency: Annotated[
        Number,
        Column("efficiency", share_text, "{against_global}", doubt="doubts_strong"),
    ]
    karp_flatt: Number
    strong_reference_gpus: int | None
    strong_reference_s: Number
    is_doubtful: bool
    doubts_strong: bool


STRONG_FIELDS = (
    "global_batch",
    "strong_speedup",
    "strong_efficiency",
    "karp_flatt",
    "strong_reference_gpus",
    "strong_reference_s",
)


def _lines(
    group: ConditionGroup, strong: Mapping[Place, Pair]
) -> Iterator[tuple[Row, ScalingLine]]:
    for row, timing in [(row, row.timing) for row in group.timed if row.timing]:
        pair = strong.get(row.place)
        line = line_from(
            ScalingLine,
            timing,
            row,
            **_ratios(row),
            **_strong_ratios(pair),
            unit=timing.unit.value,
            is_doubtful=row.is_ratio_doubtful,
            doubts_strong=pair.is_doubtful if pair else row.is_ratio_doubtful,
        )
        yield row, line


def _ratios(row: Row) -> dict[str, object]:
    """Return the ratios at the same batch; None without a reference."""
    if row.scaling is None or row.reference is None:
        return dict.fromkeys((*Scaling.__struct_fields__, "reference_gpus"))
    return msgspec.structs.asdict(row.scaling) | {"reference_gpus": row.reference.gpus}


def _strong_ratios(pair: Pair | None) -> dict[str, object]:
    """Return the ratios at the same global batch; None without a pair."""
    if pair is None:
        return dict.fromkeys(STRONG_FIELDS[1:])
    return {
        "strong_speedup": pair.speedup,
        "strong_efficiency": pair.efficiency,
        "karp_flatt": pair.serial_fraction,
        "strong_reference_gpus": pair.reference.gpus,
        "strong_reference_s": pair.reference.epoch_s,
    }


STRONG = (
    "At the same global batch (strong scaling): for every pair in the grid, against 1 {unit} or "
    "the fewest of the strategy."
)


STRONG_CAPTION = (
    "The same global batch on more {units}. Time: seconds of one epoch, the longest of all "
    "processes. Speedup: against the fewest {units}. Efficiency: speedup / ideal."
)


class StrongLine(NamedTuple):
    """A size of a global batch; its speedup and efficiency are 1 for the smallest one."""

    global_batch: Annotated[int, Column("global batch", count)]
    time_s: Annotated[float, Column("Time(s)", seconds)]
    speedup: Annotated[float, Column("Speedup", three_digits)]
    efficiency: Annotated[float, Column("efficiency", share_text)]

    @classmethod
    def of(cls, pair: Pair) -> Self:
        """Return the line of a size against the smallest one."""
        return line_from(cls, pair, pair.parallel, time_s=pair.parallel.epoch_s)


def strong_table(group: ConditionGroup) -> Table | None:
    """Return times and speedups by global batch; None where Table 1 has a speedup, or none is."""
    if any(row.is_compared for row in group.timed):
        return None
    lines = {}
    for reference, parallel in group.pairs:
        for row in (reference, parallel):
            lines[row.place] = (row, StrongLine.of(Pair(reference, row)))
    if not lines:
        return None
    caption = (
        STRONG_CAPTION.format(units=captions.units(group.device)),
        captions.runs(group.timed),
    )
    text = TableText("strong", "Strong scaling: time and speedup", "", caption)
    ordered = sorted(
        lines.values(), key=lambda item: (item[1].global_batch, item[0].gpus)
    )
    return line_table(group, text, ordered, columns_of(StrongLine))


GROUPS = 3
"""The most groups in a picture."""

LINES = 24
"""The most lines in a panel."""

CAPTION = (
    "Speedup: time of {reference} / time of N {units}, at the same batch per {unit} (weak scaling) "
    "or the same global batch (strong scaling). Efficiency: speedup / ideal (dashed). Bars: likely "
    "ranges, about 95 % confidence from 5 runs on, rougher with fewer."
)


class SpeedupCurve(NamedTuple):
    """The speedups of one strategy, treatment and batch, by growing numbers of GPUs."""

    strategy: str
    treatment: str
    batch: int
    points: list[Pair]

    @property
    def label(self) -> str:
        """Its strategy, treatment and batch."""
        treatment = f" ({self.treatment})" if self.treatment else ""
        return f"{self.strategy}{treatment}, batch {self.batch}"


class ScalingPlot(NamedTuple):
    """Strong or weak scaling of a group: a line of speedups per strategy and batch."""

    kind: str
    at_the_same: str
    units: str
    lines: list[SpeedupCurve]


def speedup(groups: Sequence[ConditionGroup]) -> Picture | None:
    """Plot speedups; None without a cell to compare others with."""
    scaled = [(group, scalings) for group in groups if (scalings := _scalings(group))]
    if not scaled:
        return None
    drawn = [
        Panel(
            f"{group.name}: " * bool(scaled[1:])
            + f"{scaling.kind}, by {scaling.at_the_same}",
            scaling,
        )
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
    reference = captions.reference_text(scaled[0][0].timed, device)
    return panels(
        "Speedup",
        drawn,
        partial(_draw, looks=looks),
        caption=[CAPTION.format(unit=gpu, units=gpus, reference=reference)],
        legend=legend | {"ideal": picture.IDEAL},
        missing=[group.name for group, _ in scaled[GROUPS:]] + left_out,
        columns=2,
        height=2.5,
    )


def _looks(lines: Sequence[SpeedupCurve]) -> dict[str, picture.Look]:
    """Return the look of each line by its label: colours tell strategies apart, or else batches."""
    batches = sorted({line.batch for line in lines})
    treatments = sorted({line.treatment for line in lines})
    has_one_strategy = len({line.strategy for line in lines}) == 1
    looks = {}
    for line in sorted(lines, key=lambda line: line[:3]):
        number = batches.index(line.batch)
        colour = picture.STRATEGY_COLOURS[line.strategy]
        if has_one_strategy and len(batches) > 1:
            colour = picture.COLOURS[number % len(picture.COLOURS)]
        dashes = picture.DASHES[treatments.index(line.treatment) % len(picture.DASHES)]
        marker = picture.MARKERS[number % len(picture.MARKERS)]
        looks[line.label] = picture.Look(colour, dashes, marker)
    return looks


def _draw(
    axis: Axes, panel: Panel[ScalingPlot], *, looks: dict[str, picture.Look]
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
    axis.plot(ends, [end / sizes[0] for end in ends], **picture.IDEAL)
    texts = []
    for line in lines:
        largest = line.points[-1]
        speedup = three_digits(largest.speedup)
        text = captions.mark(speedup, is_doubtful=largest.is_doubtful)
        size = f"{largest.parallel.gpus} {scaling.units}"
        kind = f"{scaling.kind} by {scaling.at_the_same}"
        texts.append(f"{kind}, {line.label}: {text} on {size}")
    return texts


def _draw_line(
    axis: Axes, line: SpeedupCurve, look: picture.Look, aside: float
) -> None:
    """Draw a line of the fewest nodes for each number of GPUs, and points of more nodes."""
    fewest = {point.parallel.gpus: point for point in reversed(line.points)}
    joined = [point for point in line.points if fewest[point.parallel.gpus] is point]
    at = [point.parallel.gpus * aside for point in joined]
    axis.plot(at, [point.speedup for point in joined], **look.line, ms=4.5, lw=1.4)
    for point in line.points:
        x = point.parallel.gpus * aside
        face: Any = {"marker": look.marker, "ms": 4.5, "color": look.colour}
        if point.is_doubtful:
            axis.plot([x], [point.speedup], **face, mfc=picture.PAPER)
        elif point not in joined:
            axis.plot([x], [point.speedup], **face)
        if point not in joined:
            axis.annotate(f"{point.parallel.nodes} nodes", (x, point.speedup), size=7)
        interval = point.interval
        if interval and interval.high > interval.low > 0:
            axis.vlines(x, interval.low, interval.high, color=look.colour, lw=1)


def _scalings(group: ConditionGroup) -> list[ScalingPlot]:
    """Return weak and strong scaling, without the one that the grid has no cells for."""
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
    if weak:
        lines = _curves(weak, attrgetter("batch_per_gpu"))
        by_batch = f"batch per {unit}"
        scalings.append(ScalingPlot("weak scaling", by_batch, units, lines))
    if strong:
        lines = _curves(strong, attrgetter("global_batch"))
        scalings.append(ScalingPlot("strong scaling", "global batch", units, lines))
    return scalings


def _curves(
    of_kind: Iterable[Pair], batch_of: Callable[[Row], int]
) -> list[SpeedupCurve]:
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
        lines.append(SpeedupCurve(*line, points))
    return lines
