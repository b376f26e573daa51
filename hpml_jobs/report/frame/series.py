"""Numbers of a group by GPUs as lines: one for each strategy, treatment and batch."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import Any, NamedTuple

from hpml_jobs.core.statistics import Interval
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.core.text import natural_key
from hpml_jobs.report.frame import style
from hpml_jobs.report.frame.picture import Axes, Entry, logarithmic
from hpml_jobs.results.groups import ConditionGroup

LINES = 24
"""The most lines in a panel: a colour for each strategy, a marker for each batch."""


class Point(NamedTuple):
    """A number at so many GPUs, with its interval where there is one."""

    gpus: int
    nodes: int
    value: float
    interval: Interval | None = None
    is_doubtful: bool = False


class Series(NamedTuple):
    """The numbers of one strategy, treatment and batch.

    `points` are joined by a line: growing numbers of GPUs, each on the fewest nodes. `extra_points`
    are as many GPUs on more nodes.
    """

    strategy: str
    treatment: str
    batch: int
    points: tuple[Point, ...]
    extra_points: tuple[Point, ...] = ()

    @property
    def name(self) -> str:
        """Its strategy with its treatment."""
        return (
            f"{self.strategy} ({self.treatment})" if self.treatment else self.strategy
        )

    @property
    def label(self) -> str:
        """Its strategy, treatment and batch."""
        return f"{self.name} b{self.batch}"


def make(strategy: str, treatment: str, batch: int, points: Iterable[Point]) -> Series:
    """Return points as a line."""
    ordered = sorted(points, key=lambda point: point[:2])
    fewest: dict[int, Point] = {}
    for point in ordered:
        fewest.setdefault(point.gpus, point)
    joined = tuple(fewest.values())
    extra_points = tuple(point for point in ordered if point not in joined)
    return Series(strategy, treatment, batch, joined, extra_points)


class Keys(NamedTuple):
    """The marker of every batch and the dashes of every treatment in all pictures of a study.

    `colours` are those of the batches where the study has one strategy; empty where colours tell
    strategies apart.
    """

    markers: Mapping[int, str]
    dashes: Mapping[str, Any]
    colours: Mapping[int, str]

    def look(self, line: Series) -> style.Look:
        """Return the look of a line."""
        colour = style.strategy_colour(line.strategy)
        if line.strategy != Strategy.SINGLE:
            colour = self.colours.get(line.batch, colour)
        dashes = self.dashes.get(line.treatment, "-")
        return style.Look(colour, dashes, self.marker(line.batch))

    def marker(self, batch: int) -> str:
        """Return the marker of a batch; global batches may be larger than any of a cell."""
        return self.markers.get(batch, style.MARKERS[-1])


def keys(groups: Sequence[ConditionGroup]) -> Keys:
    """Return the looks that tell the lines of one strategy apart."""
    rows = [row for group in groups for row in group.timed]
    batches = sorted({row.batch_per_gpu for row in rows})
    strategies = {row.strategy for row in rows} - {Strategy.SINGLE}
    sizes = sorted({*batches, *(row.global_batch for row in rows)})
    treatments = sorted({"", *(row.treatment for row in rows)}, key=natural_key)
    has_one_strategy = len(strategies) == 1 and len(sizes) > 1
    colours = dict(zip(sizes, cycle(style.COLOURS), strict=False))
    return Keys(
        dict(zip(batches, cycle(style.MARKERS), strict=False)),
        dict(zip(treatments, cycle(style.DASHES), strict=False)),
        colours if has_one_strategy else {},
    )


def draw(axis: Axes, lines: Sequence[Series], keys: Keys) -> None:
    """Draw lines with their intervals, each a little aside so that intervals do not overlap."""
    step = min(0.025, 0.15 / max(1, len(lines)))
    for number, line in enumerate(lines):
        aside = 1 + step * (number - (len(lines) - 1) / 2)
        look = keys.look(line)
        _draw_points(axis, line.points, look, aside)
        if line.extra_points:
            _draw_points(axis, line.extra_points, look._replace(dashes="none"), aside)
        for point in line.extra_points:
            axis.annotate(
                f"{point.nodes} nodes",
                (point.gpus * aside, point.value),
                xytext=(4, -8),
                textcoords="offset points",
                size=7,
                color=style.TEXT,
            )


def _draw_points(
    axis: Axes, points: Sequence[Point], look: style.Look, aside: float
) -> None:
    at = [point.gpus * aside for point in points]
    axis.plot(at, [point.value for point in points], **look.line, ms=4.5, lw=1.4)
    bars = [
        (x, interval.low, interval.high)
        for x, point in zip(at, points, strict=True)
        if (interval := point.interval) and interval.high > interval.low > 0
    ]
    if bars:
        axis.vlines(*zip(*bars, strict=True), color=look.colour, lw=1)
    doubtful = [(x, p.value) for x, p in zip(at, points, strict=True) if p.is_doubtful]
    hollow(axis, doubtful, look)


def hollow(axis: Axes, points: Sequence[tuple[float, float]], look: style.Look) -> None:
    """Draw hollow markers over those of doubtful numbers."""
    if points:
        face: Any = {"ms": 4.5, "mec": look.colour, "mfc": style.PAPER}
        axis.plot(*zip(*points, strict=True), ls="none", marker=look.marker, **face)


def legend(lines: Sequence[Series], keys: Keys, batch: str = "") -> dict[str, Entry]:
    """Return the entries of a legend: strategies, batches by marker or colour, doubtful numbers.

    Batches have the word `batch` before their number, and no entries without it.
    """
    entries: dict[str, Entry] = {}
    for line in lines:
        look = keys.look(line)
        is_of_batch = keys.colours and line.strategy != Strategy.SINGLE
        colour = style.GREY if is_of_batch else look.colour
        entries[line.name] = {"color": colour, "ls": look.dashes, "lw": 2}
    marker: dict[str, Any] = {"ls": "none", "ms": 4.5}
    coloured = {line.batch for line in lines if line.strategy != Strategy.SINGLE}
    for size in sorted({line.batch for line in lines}) if batch else ():
        colour = keys.colours.get(size, style.GREY) if size in coloured else style.GREY
        entries[f"{batch} {size}"] = marker | {
            "color": colour,
            "marker": keys.marker(size),
        }
    points = [point for line in lines for point in (*line.points, *line.extra_points)]
    if any(point.is_doubtful for point in points):
        face = {"color": style.GREY, "marker": "o", "mfc": style.PAPER}
        entries["hollow: doubtful"] = face | marker
    return entries


def gpu_axis(axis: Axes, gpus: Iterable[int], units: str) -> None:
    """Set a logarithmic x axis with ticks at numbers of GPUs with room, and at 2 x least."""
    sizes = sorted(set(gpus))
    sizes = sorted({*sizes, min(2 * sizes[0], sizes[-1])})
    ticks = sizes[:1]
    for size in sizes:
        if size >= 1.3 * ticks[-1]:
            ticks.append(size)
    logarithmic(axis, "x", units)
    axis.set_xticks(ticks)
    axis.set_xlim(sizes[0] / 1.25, sizes[-1] * 1.25)
