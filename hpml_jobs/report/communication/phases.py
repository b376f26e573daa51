"""The instrumented epoch: a table and a picture of its phases, and the spread over ranks."""

from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from hpml_jobs.checks.result import Affected
from hpml_jobs.core.measurements import Phases
from hpml_jobs.core.record import Record
from hpml_jobs.report.frame import captions, style
from hpml_jobs.report.frame.builder import (
    UNMEASURED,
    Column,
    Columns,
    TableText,
    column,
    left_out,
    line_table,
    rest,
)
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import percent, seconds
from hpml_jobs.report.frame.picture import (
    ROWS,
    Axes,
    Bar,
    Entry,
    Picture,
    bars,
    marked,
    rows,
    stack,
)
from hpml_jobs.report.frame.rows import Row
from hpml_jobs.report.frame.table import Table

PHASES_CAPTION = (
    "Seconds per {work} on the rank that waits least for others; below, least..most over all ranks "
    "and runs if they differ. The six phases add up to the epoch except for closure = |epoch - "
    "sum| / epoch. Overhead: instrumented epoch / timed epoch - 1, the cost of the instruments. "
    "Collectives inside forward (ddp's buffers, fsdp's parameters) and inside the optimizer "
    "(zero1's parameters) count there here, and as Comm in Table 2. Pack: the part of backward "
    "that copies into and out of messages and averages by hand; it is Comm in Table 2."
)

OF_SCRIPT = (
    "Of a script, h2d is all from the batch to the forward pass, backward all from there to the "
    "step, the loss included, and optimizer all from the step to the next batch."
)


class Phase(NamedTuple):
    """One phase: its name in the CSV, its heading on a page, its words and colour in a picture."""

    name: str
    head: str
    words: str
    colour: str

    def seconds(self, row: Row) -> float | None:
        """Return the seconds of the phase in a row's medians."""
        time_s: float | None = getattr(row.figures, f"phase_{self.name}_s")
        return time_s

    def on_rank(self, phases: Phases) -> float:
        """Return the seconds of the phase on one rank."""
        time_s: float = getattr(phases, f"{self.name}_s")
        return time_s


PHASES = (
    Phase("stall", "stall", "stall", style.MIDDLE_GREY),
    Phase("h2d", "h2d", "copy to device", style.ORANGE),
    Phase("forward", "forward", "forward", style.SKY),
    Phase("backward", "backward", "backward", style.BLUE),
    Phase("comm_exposed", "comm", "exposed communication", style.RED),
    Phase("optimizer", "optimizer", "optimizer", style.GREEN),
)
"""The phases that add up to the instrumented epoch."""


def phases(group: ConditionGroup) -> Table | None:
    """Return where the time of the instrumented epoch went."""
    rows = [row for row in group.timed if row.figures.closure is not None]
    if not rows:
        return None
    heads: tuple[Columns[Row], ...] = (
        Columns("seconds", tuple(_seconds(group, phase) for phase in PHASES)),
        Columns(
            "%",
            (
                column("closure", "closure", lambda row: row.figures.closure, percent),
                column("overhead", "overhead", lambda row: row.figures.overhead, percent),
            ),
        ),
        Columns(
            "of backward", (column("pack_s", "pack", lambda row: row.figures.pack_s, seconds),)
        ),
        Columns("", tuple(end for phase in PHASES for end in _ends(group, phase))),
    )
    text = TableText(
        "phases",
        "Phases of the instrumented epoch",
        "instrumented epoch",
        (
            PHASES_CAPTION.format(work=captions.work_text(group.work)),
            *([OF_SCRIPT] if group.a_cell.script else []),
            captions.runs(rows),
        ),
        on_screen=False,
        below="  least..most",
        affected=Affected.SPLIT,
    )
    notes = left_out(group, UNMEASURED, rest(group.rows, rows))
    return line_table(group, text, [(row, row) for row in rows], heads, notes)


def _seconds(group: ConditionGroup, phase: Phase) -> Column[Row]:
    return column(
        f"phase_{phase.name}_s",
        phase.head,
        phase.seconds,
        seconds,
        below=lambda row: _range_text(group, row, phase),
    )


def _ends(group: ConditionGroup, phase: Phase) -> tuple[Column[Row], Column[Row]]:
    """Return the least and the most of a phase over ranks and runs, for the CSV."""
    return (
        column(f"phase_{phase.name}_least_s", "", lambda row: min(_by_rank(group, row, phase))),
        column(f"phase_{phase.name}_most_s", "", lambda row: max(_by_rank(group, row, phase))),
    )


def _by_rank(group: ConditionGroup, row: Row, phase: Phase) -> list[float]:
    """Return the seconds of a phase on every rank of every run."""
    return [
        record.per_instrumented * phase.on_rank(rank.phases)
        for record in group.counted_records(row, Affected.SPLIT)
        for rank in record.ranks
        if rank.phases
    ]


def _range_text(group: ConditionGroup, row: Row, phase: Phase) -> str:
    """Return the range over ranks and runs; empty if there is none to see."""
    times_s = _by_rank(group, row, phase)
    if row.gpus == 1 and len(row.runs) == 1:
        return ""
    least, most = min(times_s), max(times_s)
    return "" if seconds(least) == seconds(most) else f"{seconds(least)}..{seconds(most)}"


PICTURE_CAPTION = (
    "Instrumented epoch, seconds of the rank that waits least for others, medians over runs. "
    "Exposed communication: after the last gradient; collectives inside forward (ddp's buffers) "
    "are in forward."
)


def phases_picture(groups: Sequence[ConditionGroup]) -> Picture | None:
    """Plot the stacked phases of each cell; None if no epoch was instrumented."""
    legend = {phase.words: phase.colour for phase in PHASES}

    def times_s(row: Row) -> list[float]:
        return [phase.seconds(row) or 0.0 for phase in PHASES]

    def draw(axis: Axes, cells: Sequence[Bar]) -> list[str]:
        times = [times_s(bar.row) for bar in cells]
        by_phase = zip(*times, strict=True)
        stack(axis, range(len(cells)), dict(zip(legend.values(), by_phase, strict=True)))
        texts = []
        for bar, parts_s in zip(cells, times, strict=True):
            shares = [part_s / sum(parts_s) for part_s in parts_s]
            of = dict(zip(legend, shares, strict=True))
            longest = max(of, key=lambda name: of[name])
            texts.append(
                f"{bar.label} {seconds(sum(parts_s))} s, {percent(of[longest])} % {longest}, "
                f"{percent(of['exposed communication'])} % exposed communication"
            )
        return texts

    cells = bars(groups, Affected.SPLIT, lambda row: sum(times_s(row)) > 0)
    return rows(
        "Phases of an epoch",
        cells,
        draw,
        x=captions.per_work(groups),
        alt="Phases of an epoch: ",
        caption=[PICTURE_CAPTION, marked(cells)],
        legend=legend,
        file="phases.csv",
    )


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
