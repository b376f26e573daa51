"""Picture of the microbenchmark: bus bandwidth by size, with the sizes that are sent."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from hpml_jobs.core.measurements import CollectiveKind
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.plots import style
from hpml_jobs.report.plots.picture import Picture, listed, not_drawn, sentences
from hpml_jobs.report.report import Report
from hpml_jobs.report.tables.microbenchmark import (
    Allocation,
    allocations,
    factors_text,
    kinds_of,
)
from hpml_jobs.report.text import captions
from hpml_jobs.report.text.numbers import gb_per_s

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

CAPTION = (
    "{Kinds} of one message on idle devices after E3: busbw = {factors} x bytes / time, lower "
    "quartile of the trials, median over cells; bands: least and most of the cells. Marks at the "
    "bottom: sizes of these messages that each strategy sends in an epoch. GB = 1e9 bytes."
)

WIDE_RANGE = 1_000
"""From this range of speeds on, only powers of 10 have ticks."""

POWERS = ["B", "KiB", "MiB"]


class Curve(NamedTuple):
    """The bus bandwidth of one allocation by message bytes: median, least and most of its cells."""

    name: str
    gb_per_s: dict[int, float]
    least: dict[int, float]
    most: dict[int, float]


class Panel(NamedTuple):
    """The curves of one group, and the sizes that its strategies send."""

    title: str
    curves: list[Curve]
    sent: dict[str, list[int]]


def bandwidth(report: Report) -> Picture | None:
    """Plot the bus bandwidth by message size; None without a microbenchmark."""
    panels = [
        Panel(report.name(group), curves, _sent(group.source, kinds_of(places)))
        for group in report.groups
        if (places := allocations(group.source))
        and (curves := [_curve(group.source, place, kinds_of(places)) for place in places])
    ]
    if not panels:
        return None
    shown = panels[: style.PANELS]
    names = list(dict.fromkeys(curve.name for panel in shown for curve in panel.curves))
    looks = dict(zip(names, _looks(names), strict=True))
    figure, axes = style.panels(len(shown), columns=style.even(len(shown), 3), height=3.2)
    for axis, panel in zip(axes, shown, strict=True):
        axis.set_title(panel.title, loc="left")
        _draw(axis, panel, looks)
    for axis in style.left_ones(axes):
        axis.set_ylabel("bus bandwidth, GB/s")
    style.entries(figure, _legend(shown, looks))
    missing = [panel.title for panel in panels[len(shown) :]]
    kinds = kinds_of(place for group in report.groups for place in allocations(group.source))
    words = listed([kind.words for kind in kinds])
    text = CAPTION.format(Kinds=words.capitalize(), factors=factors_text(kinds))
    caption = sentences(text, not_drawn(missing, "microbenchmark.csv"))
    return Picture("Bus bandwidth by message size", figure, _alt(shown, words), caption)


def _looks(names: Sequence[str]) -> list[style.Look]:
    """Return looks of allocations: they belong to no strategy, so they share one colour."""
    return [
        style.Look(style.GREY, style.DASHES[n % 4], style.MARKERS[n % len(style.MARKERS)])
        for n in range(len(names))
    ]


def _curve(group: ConditionGroup, place: Allocation, kinds: Collection[CollectiveKind]) -> Curve:
    nodes = f" on {place.nodes} nodes" if place.nodes > 1 else ""
    collective = f", {place.kind.words}" if len(kinds) > 1 else ""
    speeds: dict[int, list[float]] = {}
    for _, point in place.points:
        if point.typical_s > 0:
            speed = place.bus_gb_per_s(point.bytes, point.typical_s)
            speeds.setdefault(point.bytes, []).append(speed)
    return Curve(
        f"{place.gpus} {captions.units(group.device)}{nodes}{collective}",
        {size: place.bus_gb_per_s(size, time_s) for size, time_s in place.times_s.items()},
        {size: min(values) for size, values in sorted(speeds.items())},
        {size: max(values) for size, values in sorted(speeds.items())},
    )


def _sent(group: ConditionGroup, kinds: Collection[CollectiveKind]) -> dict[str, list[int]]:
    """Return the sizes of the messages of some collectives that each strategy sends."""
    sizes: dict[str, set[int]] = {}
    for row in group.timed:
        for record in group.records(row):
            for message in record.communication.messages if record.communication else ():
                if message.kind in kinds and message.bytes > 0:
                    sizes.setdefault(row.strategy.value, set()).add(message.bytes)
    return {strategy: sorted(of) for strategy, of in sizes.items()}


def _draw(axis: "Axes", panel: Panel, looks: Mapping[str, style.Look]) -> None:
    from matplotlib import ticker  # noqa: PLC0415 - heavy

    for curve in panel.curves:
        look, sizes = looks[curve.name], list(curve.gb_per_s)
        if any(curve.most[size] > curve.least[size] for size in sizes):
            least, most = ([of[size] for size in sizes] for of in (curve.least, curve.most))
            axis.fill_between(sizes, least, most, color=look.colour, alpha=0.18, lw=0)
        speeds = list(curve.gb_per_s.values())
        axis.plot(
            sizes, speeds, color=look.colour, ls=look.dashes, marker=look.marker, ms=3.5, lw=1.4
        )
    for number, (strategy, sizes) in enumerate(panel.sent.items()):
        axis.plot(
            sizes,
            [0.025 + 0.045 * number] * len(sizes),
            transform=axis.get_xaxis_transform(),
            color=style.strategy_colour(strategy),
            ls="none",
            marker="|",
            ms=7,
            mew=1.6,
        )
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_locator(ticker.LogLocator(base=16, numticks=8))
    axis.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: size_text(value)))
    axis.xaxis.set_minor_locator(ticker.NullLocator())
    axis.set_xlabel("message size")
    ends = [of for curve in panel.curves for of in (*curve.least.values(), *curve.most.values())]
    style.by_ratio(axis, (1,) if max(ends) > WIDE_RANGE * min(ends) else (1, 2, 5))
    bottom, top = axis.get_ylim()
    axis.set_ylim(bottom / (top / bottom) ** (0.05 * len(panel.sent)), top)


def size_text(size: float) -> str:
    """Return a number of bytes in powers of 1,024.

    >>> [size_text(size) for size in (512, 65_536, 104_616, 1_048_576 * 2048)]
    ['512 B', '64 KiB', '102 KiB', '2048 MiB']
    """
    power = 0
    while size >= 1024 and power < len(POWERS) - 1:
        size, power = size / 1024, power + 1
    return f"{size:.3g} {POWERS[power]}" if size < 1000 else f"{size:.0f} {POWERS[power]}"


def _legend(panels: Sequence[Panel], looks: Mapping[str, style.Look]) -> "dict[str, Artist]":
    from matplotlib.lines import Line2D  # noqa: PLC0415 - heavy

    entries: dict[str, Artist] = {
        name: Line2D([], [], color=look.colour, ls=look.dashes, marker=look.marker, ms=4)
        for name, look in looks.items()
    }
    for strategy in dict.fromkeys(name for panel in panels for name in panel.sent):
        colour = style.strategy_colour(strategy)
        entries[f"sent by {strategy}"] = Line2D(
            [], [], color=colour, ls="none", marker="|", ms=7, mew=1.6
        )
    return entries


def _alt(panels: Sequence[Panel], collectives: str) -> str:
    texts = []
    for panel in panels:
        for curve in panel.curves:
            size = max(curve.gb_per_s, key=lambda size: curve.gb_per_s[size])
            speed = gb_per_s(curve.gb_per_s[size])
            texts.append(f"{panel.title} {curve.name} {speed} GB/s at {size_text(size)}".strip())
        for strategy, sizes in panel.sent.items():
            texts.append(f"{strategy} sends {size_text(sizes[0])} to {size_text(sizes[-1])}")
    return f"Bus bandwidth of {collectives}, most: {listed(texts, '; ')}."
