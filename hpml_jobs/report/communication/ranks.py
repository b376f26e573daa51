"""Picture of the spread over ranks: which rank, on which host, the others wait for."""

from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from hpml_jobs.checks.result import Affected
from hpml_jobs.core.record import Record
from hpml_jobs.report.frame import style
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.picture import ROWS, Axes, Entry, Picture, bars, marked, rows

CAPTION = (
    "Instrumented epoch of each rank and run, without its exposed communication, less the median "
    "rank of the same run, in % of it: the time in which a rank neither waits for others nor "
    "exchanges. The rank with the most is named with its median over runs; ranks of one node share "
    "its CPUs and links."
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
    """The ranks of all runs of a cell."""

    label: str
    strategy: str
    dots: list[Dot]

    @property
    def slowest(self) -> Dot:
        """The rank and host with the largest median over runs."""
        by_place: dict[tuple[int, str], list[float]] = {}
        for rank, host, longer in self.dots:
            by_place.setdefault((rank, host), []).append(longer)
        medians = [Dot(*place, median(values)) for place, values in by_place.items()]
        return max(medians, key=lambda dot: dot.longer)


def ranks(groups: Sequence[ConditionGroup]) -> Picture | None:
    """Plot the spread over ranks of each cell; None without a cell of several measured ranks."""
    spreads = []
    for bar in bars(groups, Affected.SPLIT, lambda row: row.gpus > 1):
        records = bar.group.counted_records(bar.row, Affected.SPLIT)
        if dots := [dot for record in records for dot in _dots(record)]:
            spreads.append(Spread(bar.label, bar.row.strategy.value, dots))
    markers = _markers(spreads[:ROWS])

    def draw(axis: Axes, spreads: Sequence[Spread]) -> list[str]:
        texts = []
        for at, spread in enumerate(spreads):
            look: Any = {
                "color": style.strategy_colour(spread.strategy),
                "ls": "none",
                "alpha": 0.75,
            }
            by_host: dict[str, list[float]] = {}
            for _, host, longer in spread.dots:
                by_host.setdefault(host if host in markers else OTHER_HOSTS, []).append(longer)
            for host, values in by_host.items():
                axis.plot(values, [at] * len(values), marker=markers[host], ms=4, **look)
            rank, host, longer = spread.slowest
            name, more = f"rank {rank} on {_short(host)}", f"{longer:+.1f} %"
            right: Any = {"transform": axis.get_yaxis_transform(), "size": 7.5, "va": "center"}
            axis.text(1.01, at, f"{name}, {more}", **right)
            texts.append(f"{spread.label} {name} {more}")
        axis.axvline(0, color=style.GREY, lw=0.8, zorder=1)
        axis.locator_params(axis="x", nbins=7)
        return texts

    strategies: dict[str, Entry] = {
        spread.strategy: {"color": style.strategy_colour(spread.strategy), "lw": 2}
        for spread in spreads[:ROWS]
    }
    hosts: dict[str, Entry] = {
        _short(host): {"color": style.GREY, "ls": "none", "marker": marker, "ms": 4}
        for host, marker in markers.items()
    }
    return rows(
        "Spread over ranks",
        spreads,
        draw,
        x="% longer than the median rank",
        alt="Slowest rank of each cell against its median rank: ",
        caption=[CAPTION, marked(spreads)],
        legend=strategies | hosts,
        file="record.json of each cell",
    )


def _dots(record: Record) -> list[Dot]:
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


def _markers(spreads: Sequence[Spread]) -> dict[str, str]:
    """Return the marker of each host: the first of them, and those of the slowest ranks."""
    slow = [spread.slowest.host for spread in spreads]
    hosts = list(dict.fromkeys([*slow, *(dot.host for spread in spreads for dot in spread.dots)]))
    markers = dict(zip(sorted(hosts[:HOSTS]), style.MARKERS, strict=False))
    return markers | ({OTHER_HOSTS: "."} if len(hosts) > HOSTS else {})


def _short(host: str) -> str:
    """Return a host's name without its domain."""
    return host.partition(".")[0]
