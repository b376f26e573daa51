"""Picture of the microbenchmark: bus bandwidth by size, with the sizes that are sent."""

from collections.abc import Collection
from typing import Any, NamedTuple

from hpml_jobs.core.measurements import CollectiveKind
from hpml_jobs.extras.microbenchmark.points import (
    Allocation,
    allocations,
    factors_text,
    kinds_of,
)
from hpml_jobs.report.frame import captions, style
from hpml_jobs.report.frame.numbers import three_digits
from hpml_jobs.report.frame.picture import (
    Axes,
    Entry,
    Panel,
    Picture,
    cut,
    logarithmic,
    panels,
)
from hpml_jobs.report.report import Report
from hpml_jobs.results.groups import ConditionGroup

CAPTION = (
    "{Kinds} of one message on idle devices after the last epoch: busbw = {factors} x bytes / "
    "time, lower quartile of the trials, median over cells; bands: least and most of the cells. "
    "Marks at the bottom: sizes of these messages that each strategy sends in an epoch. GB = 1e9 "
    "bytes."
)

WIDE_RANGE = 1_000
"""From this range of speeds on, only powers of 10 have ticks."""

SENT: Any = {"ls": "none", "marker": "|", "ms": 7, "mew": 1.6}
"""The marks of sizes that are sent."""


class MessageCurve(NamedTuple):
    """The bus bandwidth of one allocation by message bytes: median, and of every cell."""

    name: str
    gb_per_s: dict[int, float]
    of_cells: dict[int, list[float]]


class Sweeps(NamedTuple):
    """The curves of a group, and the message sizes that its strategies send."""

    curves: list[MessageCurve]
    sent: dict[str, list[int]]


def bandwidth(report: Report) -> Picture | None:
    """Plot the bus bandwidth by message size; None without a microbenchmark."""
    places = [(group, allocations(group)) for group in report.sources]
    sweep_panels, missing = cut(
        [
            Panel(group.name, _sweeps(group, group_places))
            for group, group_places in places
            if group_places
        ]
    )
    names = list(
        dict.fromkeys(curve.name for panel in sweep_panels for curve in panel.data.curves)
    )
    looks = {  # allocations belong to no strategy, so they share one colour
        name: style.Look(
            style.GREY, style.DASHES[n % 4], style.MARKERS[n % len(style.MARKERS)]
        )
        for n, name in enumerate(names)
    }

    def draw(axis: Axes, panel: Panel[Sweeps]) -> list[str]:
        title, (curves, sent) = panel
        texts, ends = [], []
        for curve in curves:
            look, sizes = looks[curve.name], list(curve.gb_per_s)
            least = [min(curve.of_cells[size]) for size in sizes]
            most = [max(curve.of_cells[size]) for size in sizes]
            if least != most:
                axis.fill_between(sizes, least, most, color=look.colour, alpha=0.18, lw=0)
            axis.plot(sizes, list(curve.gb_per_s.values()), **look.line, ms=3.5, lw=1.4)
            ends += [*least, *most]
            size = max(sizes, key=lambda size: curve.gb_per_s[size])
            speed = three_digits(curve.gb_per_s[size])
            texts.append(f"{title} {curve.name} {speed} GB/s at {size_text(size)}".strip())
        for number, (strategy, sizes) in enumerate(sent.items()):
            height, at = [0.025 + 0.045 * number] * len(sizes), axis.get_xaxis_transform()
            axis.plot(
                sizes, height, transform=at, color=style.strategy_colour(strategy), **SENT
            )
            ends_text = dict.fromkeys((size_text(sizes[0]), size_text(sizes[-1])))
            texts.append(f"{strategy} sends {' to '.join(ends_text)}")
        logarithmic(axis, "x", "message size", at=(1,), base=16, text=size_text)
        ticks = (1,) if max(ends) > WIDE_RANGE * min(ends) else (1, 2, 5)
        logarithmic(axis, "y", "bus bandwidth, GB/s", at=ticks)
        bottom, top = axis.get_ylim()
        axis.set_ylim(
            bottom / (top / bottom) ** (0.05 * len(sent)), top
        )  # room for the marks
        return texts

    marks: dict[str, Entry] = {
        f"sent by {strategy}": {"color": style.strategy_colour(strategy), **SENT}
        for panel in sweep_panels
        for strategy in panel.data.sent
    }
    kinds = kinds_of(place for _, group_places in places for place in group_places)
    words = captions.first_few([kind.words for kind in kinds])
    return panels(
        "Bus bandwidth by message size",
        sweep_panels,
        draw,
        alt=f"Bus bandwidth of {words}, most: ",
        caption=[CAPTION.format(Kinds=words.capitalize(), factors=factors_text(kinds))],
        legend={name: look.line | {"ms": 4} for name, look in looks.items()} | marks,
        missing=missing,
        file="microbenchmark.csv",
        height=3.2,
    )


def _sweeps(group: ConditionGroup, places: list[Allocation]) -> Sweeps:
    kinds = kinds_of(places)
    sent: dict[str, set[int]] = {}
    for row in group.timed:
        for record in group.records(row):
            for message in record.communication.messages if record.communication else ():
                if message.kind in kinds and message.bytes > 0:
                    sent.setdefault(row.strategy.value, set()).add(message.bytes)
    return Sweeps(
        [_curve(group, place, kinds) for place in places],
        {strategy: sorted(sizes) for strategy, sizes in sent.items()},
    )


def _curve(
    group: ConditionGroup, place: Allocation, kinds: Collection[CollectiveKind]
) -> MessageCurve:
    nodes = f" on {place.nodes} nodes" if place.nodes > 1 else ""
    collective = f", {place.kind.words}" if len(kinds) > 1 else ""
    of_cells: dict[int, list[float]] = {}
    for _, point in place.points:
        if point.typical_s > 0:
            speed = place.bus_gb_per_s(point.bytes, point.typical_s)
            of_cells.setdefault(point.bytes, []).append(speed)
    return MessageCurve(
        f"{place.gpus} {captions.units(group.device)}{nodes}{collective}",
        {size: place.bus_gb_per_s(size, time_s) for size, time_s in place.times_s.items()},
        of_cells,
    )


def size_text(size: float) -> str:
    """Return a number of bytes in powers of 1,024.

    >>> [size_text(size) for size in (512, 65_536, 104_616, 1_048_576 * 2048)]
    ['512 B', '64 KiB', '102 KiB', '2048 MiB']
    """
    unit = "B"
    for larger in ("KiB", "MiB"):
        if size >= 1024:
            size, unit = size / 1024, larger
    return f"{size:.3g} {unit}" if size < 1000 else f"{size:.0f} {unit}"
