"""Picture of the spread over ranks: which rank, on which host, the others wait for."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from hpml_jobs.checks.result import Affected
from hpml_jobs.core.record import Record
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.rows import Row
from hpml_jobs.report.plots import cells, style
from hpml_jobs.report.plots.cells import Bar
from hpml_jobs.report.plots.picture import Picture, listed, not_drawn, sentences
from hpml_jobs.report.report import Report

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

CAPTION = (
    "E2 of each rank and run, without its exposed communication, less the median rank of the same "
    "run, in % of it: the time in which a rank neither waits for others nor exchanges. The rank "
    "with the most is named with its median over runs; ranks of one node share its CPUs and links."
)
HOSTS = 6
"""The most hosts with a marker of their own."""

OTHER_HOSTS = "other hosts"


class Dot(NamedTuple):
    """One rank of one run: its host, and how much longer it works than the median rank, in %."""

    rank: int
    host: str
    longer: float


class Spread(NamedTuple):
    """The ranks of all runs of a cell, and the slowest of them."""

    bar: Bar
    dots: list[Dot]

    @property
    def slowest(self) -> Dot:
        """The rank and host with the largest median over runs."""
        places = dict.fromkeys((dot.rank, dot.host) for dot in self.dots)
        medians = [
            Dot(*place, median(dot.longer for dot in self.dots if dot[:2] == place))
            for place in places
        ]
        return max(medians, key=lambda dot: dot.longer)


def ranks(report: Report) -> Picture | None:
    """Plot the spread over ranks of each cell; None without a cell of several measured ranks."""
    spreads = [
        Spread(bar, dots)
        for bar in cells.bars(report, Affected.SPLIT, lambda row: row.gpus > 1)
        if (dots := _dots(bar.group, bar.row))
    ]
    if not spreads:
        return None
    shown = spreads[: cells.BARS]
    figure, (axis,) = style.panels(1, height=cells.height(len(shown)))
    markers = _markers(shown)
    places: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for at, spread in enumerate(shown):
        strategy = spread.bar.row.strategy.value
        for dot in spread.dots:
            host = dot.host if dot.host in markers else OTHER_HOSTS
            places.setdefault((strategy, host), []).append((dot.longer, at))
    for (strategy, host), points in places.items():
        axis.plot(
            *zip(*points, strict=True),
            color=style.strategy_colour(strategy),
            ls="none",
            marker=markers[host],
            ms=4,
            alpha=0.75,
        )
    axis.axvline(0, color=style.GREY, lw=0.8, zorder=1)
    cells.label(axis, [spread.bar.label for spread in shown], "% longer than the median rank")
    axis.locator_params(axis="x", nbins=7)
    _name_slowest(axis, shown)
    style.entries(figure, _legend(shown, markers))
    missing = [spread.bar.label for spread in spreads[len(shown) :]]
    marked = cells.MARKED if any(spread.bar.is_marked for spread in shown) else ""
    caption = sentences(CAPTION, marked, not_drawn(missing, "record.json of each cell"))
    return Picture("Spread over ranks", figure, _alt(shown), caption)


def _dots(group: ConditionGroup, row: Row) -> list[Dot]:
    records = group.counted_records(row, Affected.SPLIT)
    return [dot for record in records for dot in _of_run(record)]


def _of_run(record: Record) -> list[Dot]:
    """Return the ranks of one run; none where a rank alone drives all devices."""
    busy_s = {
        (rank.rank, rank.host): sum(phases.parts_s) - phases.exposed_s
        for rank in record.ranks
        if (phases := rank.phases)
    }
    typical_s = median(busy_s.values()) if len(busy_s) > 1 else 0.0
    if typical_s <= 0:
        return []
    return [Dot(*place, 100 * (value / typical_s - 1)) for place, value in busy_s.items()]


def _markers(shown: Sequence[Spread]) -> dict[str, str]:
    """Return the marker of each host: the first of them, and those of the slowest ranks."""
    slow = [spread.slowest.host for spread in shown]
    hosts = list(dict.fromkeys([*slow, *(dot.host for spread in shown for dot in spread.dots)]))
    markers = dict(zip(sorted(hosts[:HOSTS]), style.MARKERS, strict=False))
    return markers | ({OTHER_HOSTS: "."} if len(hosts) > HOSTS else {})


def _name_slowest(axis: "Axes", shown: Sequence[Spread]) -> None:
    for at, spread in enumerate(shown):
        slowest = spread.slowest
        axis.text(
            1.01,
            at,
            f"rank {slowest.rank} on {_short(slowest.host)}, {slowest.longer:+.1f} %",
            transform=axis.get_yaxis_transform(),
            size=7.5,
            va="center",
        )


def _short(host: str) -> str:
    """Return a host's name without its domain."""
    return host.partition(".")[0]


def _legend(shown: Sequence[Spread], markers: Mapping[str, str]) -> "dict[str, Artist]":
    from matplotlib.lines import Line2D  # noqa: PLC0415 - heavy

    entries: dict[str, Artist] = {}
    for spread in shown:
        strategy = spread.bar.row.strategy.value
        entries[strategy] = Line2D([], [], color=style.strategy_colour(strategy), lw=2)
    for host, marker in markers.items():
        entries[_short(host)] = Line2D([], [], color=style.GREY, ls="none", marker=marker, ms=4)
    return entries


def _alt(shown: Sequence[Spread]) -> str:
    texts = [
        f"{spread.bar.label} rank {spread.slowest.rank} on {_short(spread.slowest.host)} "
        f"{spread.slowest.longer:+.1f} %"
        for spread in shown
    ]
    return f"Slowest rank of each cell against its median rank: {listed(texts, '; ')}."
