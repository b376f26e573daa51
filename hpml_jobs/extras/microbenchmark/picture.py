"""Picture of the microbenchmark: bus bandwidth by size, with the sizes that are sent."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from hpml_jobs.core.measurements import CollectiveKind, Message
from hpml_jobs.core.record import Record
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

    @property
    def fastest(self) -> str:
        """Its greatest bandwidth and the size that has it, in words."""
        size = max(self.gb_per_s, key=lambda size: self.gb_per_s[size])
        gb_per_s = three_digits(self.gb_per_s[size])
        return f"{gb_per_s} GB/s ({self.name}, {size_text(size)})"


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
    looks: dict[str, style.Look] = {}
    marks: dict[str, Entry] = {}
    for curves, sent in (panel.data for panel in sweep_panels):
        for curve in curves:
            looks.setdefault(curve.name, _look(len(looks)))
        for strategy in sent:
            colour = style.strategy_colour(strategy)
            marks[f"sent by {strategy}"] = {"color": colour, **SENT}
    kinds = kinds_of(chain(*(group_places for _, group_places in places)))
    words = captions.first_few([kind.words for kind in kinds])
    return panels(
        "Bus bandwidth by message size",
        sweep_panels,
        partial(_draw, looks=looks),
        alt=f"Largest bus bandwidth of {words}: ",
        caption=[CAPTION.format(Kinds=words.capitalize(), factors=factors_text(kinds))],
        legend={name: look.line | {"ms": 4} for name, look in looks.items()} | marks,
        missing=missing,
        file="microbenchmark.csv",
        height=3.2,
    )


def _look(number: int) -> style.Look:
    """Return the look of a curve; allocations belong to no strategy, so they share one colour."""
    dashes = style.DASHES[number % 4]
    marker = style.MARKERS[number % len(style.MARKERS)]
    return style.Look(style.GREY, dashes, marker)


def _draw(
    axis: Axes, panel: Panel[Sweeps], *, looks: Mapping[str, style.Look]
) -> list[str]:
    """Draw the curves of a group and the sizes that it sends; return them in words."""
    title, (curves, sent) = panel
    texts, ends = [], []
    for curve in curves:
        ends += _draw_curve(axis, curve, looks[curve.name])
        texts.append(f"{title}: {curve.fastest}" if title else curve.fastest)
    for number, (strategy, sizes) in enumerate(sent.items()):
        height = [0.025 + 0.045 * number] * len(sizes)
        axis.plot(
            sizes,
            height,
            transform=axis.get_xaxis_transform(),
            color=style.strategy_colour(strategy),
            **SENT,
        )
        first, last = size_text(sizes[0]), size_text(sizes[-1])
        texts.append(f"{strategy} sends {' to '.join(dict.fromkeys((first, last)))}")
    logarithmic(axis, "x", "message size", at=(1,), base=16, text=size_text)
    ticks = (1,) if max(ends) > WIDE_RANGE * min(ends) else (1, 2, 5)
    logarithmic(axis, "y", "bus bandwidth, GB/s", at=ticks)
    bottom, top = axis.get_ylim()
    room_for_marks = (top / bottom) ** (0.05 * len(sent))
    axis.set_ylim(bottom / room_for_marks, top)
    return texts


def _draw_curve(axis: Axes, curve: MessageCurve, look: style.Look) -> list[float]:
    """Draw a curve and the band of its cells; return the ends of the band."""
    sizes = list(curve.gb_per_s)
    least = [min(curve.of_cells[size]) for size in sizes]
    most = [max(curve.of_cells[size]) for size in sizes]
    if least != most:
        axis.fill_between(sizes, least, most, color=look.colour, alpha=0.18, lw=0)
    medians = list(curve.gb_per_s.values())
    axis.plot(sizes, medians, **look.line, ms=3.5, lw=1.4)
    return [*least, *most]


def _sweeps(group: ConditionGroup, places: list[Allocation]) -> Sweeps:
    kinds = kinds_of(places)
    sent: dict[str, set[int]] = {}
    for row in group.timed:
        for message in chain(*map(_messages, group.records(row))):
            if message.kind in kinds and message.bytes > 0:
                sent.setdefault(row.strategy.value, set()).add(message.bytes)
    return Sweeps(
        [_curve(group, place, kinds) for place in places],
        {strategy: sorted(sizes) for strategy, sizes in sent.items()},
    )


def _messages(record: Record) -> Sequence[Message]:
    return record.communication.messages if record.communication else ()


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
    name = f"{place.gpus} {captions.units(group.device)}{nodes}{collective}"
    medians = {
        size: place.bus_gb_per_s(size, time_s) for size, time_s in place.times_s.items()
    }
    return MessageCurve(name, medians, of_cells)


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
