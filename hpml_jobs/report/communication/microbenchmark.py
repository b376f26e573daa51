"""Full tables of the microbenchmark: every collective and size, a startup with two slopes."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Annotated, NamedTuple, Self

from hpml_jobs.core import formulas
from hpml_jobs.core.disturbance import quiet_microbenchmarks
from hpml_jobs.core.measurements import CollectiveKind, MicrobenchmarkPoint, NcclChoice
from hpml_jobs.core.message_times import TwoSlopes, fit_two_slopes, pooled
from hpml_jobs.core.record import Record
from hpml_jobs.core.text import counted
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.builder import Number, Shown, TableText, columns_of, item_table
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import (
    DASH,
    count,
    gb_per_s,
    microseconds,
    milliseconds,
    percent,
)
from hpml_jobs.report.frame.rows import Setup
from hpml_jobs.report.frame.table import Block, Line, Sheet, Table

POINTS = (
    "One message on idle devices after the last epoch, in each cell's own allocation. ms: lower "
    "quartile of the trials (median in records before 0.6.0), median over {cells}; the slowest "
    "rank counts. GB/s (1e9 bytes): busbw = {factors} x bytes / time. Delayed: trials of more than "
    "5 times the fastest, which waited for the scheduler of the machine. * marks sizes that the "
    "cells send."
)
FACTORS = {
    CollectiveKind.ALL_REDUCE: "2(N-1)/N",
    CollectiveKind.ALL_GATHER: "(N-1)/N",
    CollectiveKind.REDUCE_SCATTER: "(N-1)/N",
    CollectiveKind.BROADCAST: "1",
}
"""The bus factors of `formulas.bus_factor` in words."""

NVLS = (
    "NVLS: the switch adds, so a GPU sends about half of a ring's bytes and busbw may exceed the "
    "speed of its links."
)
LATE = (
    "Launched late: a device reached the start of the trial before the host had queued the "
    "collective, so that its launch from Python is in the time; such trials are left out where "
    "others exist."
)
FIT = (
    "A description of the times above, of the whole collective: startup + bytes / algbw, with one "
    "algbw up to the knee and another one for the bytes beyond it, by least squares of logarithms "
    "over the pooled cells. It describes them if, from 64 KiB up, the median residual is <= 10 % "
    "and the worst <= 30 %. No other figure uses it."
)
RESOLVED = 0.01
"""A slope that adds less than this share of the startup, up to the knee, is not resolved."""


class Allocation(NamedTuple):
    """GPUs on nodes, a collective, and the records of all cells that measured it there.

    Times of those that something disturbed count only where there are no others.
    """

    gpus: int
    nodes: int
    kind: CollectiveKind
    records: tuple[Record, ...]

    @property
    def points(self) -> Iterator[tuple[Record, MicrobenchmarkPoint]]:
        """Every point of every cell, with its record."""
        for record in self.records:
            if record.microbenchmark:
                points_of_kind = record.microbenchmark.points_of(self.kind)
                yield from ((record, point) for point in points_of_kind)

    @property
    def times_s(self) -> dict[int, float]:
        """Median over cells of their typical seconds, by message bytes."""
        return pooled(
            record.microbenchmark.times_of(self.kind)
            for record in quiet_microbenchmarks(self.records)
            if record.microbenchmark
        )

    def bus_gb_per_s(self, size: int, seconds: float) -> float:
        """Return the bus bandwidth of a message of this collective."""
        return formulas.bus_gb_per_s(size, seconds, self.gpus, self.kind)

    def delayed_text(self, size: int) -> str:
        """Return how many trials of a size were delayed, of how many; a dash if not recorded."""
        of_size = [point for _, point in self.points if point.bytes == size]
        counts = [point.delayed for point in of_size if point.delayed is not None]
        if not of_size or len(counts) < len(of_size):
            return DASH
        return f"{sum(counts)} of {sum(point.trials for point in of_size)}"


def allocations(group: ConditionGroup) -> list[Allocation]:
    """Return every allocation with a microbenchmark, by collective, GPUs and nodes."""
    records_by_place: dict[tuple[CollectiveKind, int, int], list[Record]] = {}
    for row in group.timed:
        for record in group.records(row):
            for kind in record.microbenchmark.kinds if record.microbenchmark else ():
                records_by_place.setdefault((kind, row.gpus, row.nodes), []).append(record)
    order = [*CollectiveKind]
    return [
        Allocation(gpus, nodes, kind, tuple(records))
        for (kind, gpus, nodes), records in sorted(
            records_by_place.items(), key=lambda item: (order.index(item[0][0]), *item[0][1:])
        )
    ]


def kinds_of(places: Iterable[Allocation]) -> list[CollectiveKind]:
    """Return the collectives of some allocations."""
    return list(dict.fromkeys(place.kind for place in places))


def _label(group: ConditionGroup, allocation: Allocation, kinds: Collection[CollectiveKind]) -> str:
    """Return the name of an allocation, with its collective where there are several."""
    setup = Setup(allocation.gpus, allocation.nodes, allocation.records[0].cell.strategy)
    place = captions.place_label(setup, group.device)
    return f"{place} {allocation.kind.words}" if len(kinds) > 1 else place


def points(group: ConditionGroup) -> Table | None:
    """Return time and bus bandwidth by message size; None without a microbenchmark."""
    probed_allocations = allocations(group)
    if not probed_allocations:
        return None
    kinds = kinds_of(probed_allocations)
    times = [allocation.times_s for allocation in probed_allocations]
    sent = {
        point.bytes
        for allocation in probed_allocations
        for _, point in allocation.points
        if point.sent
    }
    cells = ", ".join(
        f"{counted(len(allocation.records), 'cell')} on {_label(group, allocation, kinds)}"
        for allocation in probed_allocations
    )
    return Table(
        label="microbenchmark",
        title=f"Microbenchmark: {', '.join(kind.words for kind in kinds)}",
        corner="bytes",
        blocks=tuple(
            Block(head=_label(group, allocation, kinds), columns=("ms", "GB/s", "delayed"))
            for allocation in probed_allocations
        ),
        lines=tuple(
            Line(
                label=f"{count(size)}{' *' if size in sent else ''}",
                texts=tuple(
                    text
                    for allocation, at in zip(probed_allocations, times, strict=True)
                    for text in _texts(allocation, size, at.get(size))
                ),
            )
            for size in sorted({size for by_size in times for size in by_size})
        ),
        caption=(
            POINTS.format(cells=cells, factors=factors_text(kinds)),
            *_late(probed_allocations),
            *_choices(group, probed_allocations),
        ),
        setting=captions.setting(group),
        on_screen=False,
        sheet=_sheet(group),
    )


def factors_text(kinds: Sequence[CollectiveKind]) -> str:
    """Return the bus factors in words.

    >>> factors_text([CollectiveKind.ALL_REDUCE])
    '2(N-1)/N'
    >>> factors_text([CollectiveKind.ALL_GATHER, CollectiveKind.BROADCAST])
    'factor (all-gather: (N-1)/N of the gathered bytes; broadcast: 1)'
    """
    if len(kinds) == 1:
        return FACTORS[kinds[0]]
    bytes_of = {
        CollectiveKind.ALL_GATHER: " of the gathered bytes",
        CollectiveKind.REDUCE_SCATTER: " of the reduced bytes",
    }
    factors = (f"{kind.words}: {FACTORS[kind]}{bytes_of.get(kind, '')}" for kind in kinds)
    return f"factor ({'; '.join(factors)})"


def _late(places: Iterable[Allocation]) -> Iterator[str]:
    """Yield what late launches are, with their number, where there were any."""
    points = [point for place in places for _, point in place.points]
    late = sum(point.launched_late or 0 for point in points)
    if late:
        whole = sum(point.contains_launch for point in points)
        only = f", and all trials of {counted(whole, 'size')}" if whole else ""
        yield f"{LATE} Here: {counted(late, 'trial')}{only}."


def _texts(allocation: Allocation, size: int, time_s: float | None) -> tuple[str, str, str]:
    if not time_s:
        return DASH, DASH, DASH
    return (
        milliseconds(time_s),
        gb_per_s(allocation.bus_gb_per_s(size, time_s)),
        allocation.delayed_text(size),
    )


def _choice_of(
    record: Record, point: MicrobenchmarkPoint
) -> tuple[str | None, str | None, int | None]:
    """Return NCCL's algorithm, protocol and number of channels of a point; None if not known."""
    choices = (record.microbenchmark and record.microbenchmark.nccl) or ()
    for choice in choices:
        if (choice.kind, choice.bytes) == (point.kind, point.bytes):
            return choice.algorithm, choice.protocol, choice.channels
    return None, None, None


def choices_text(choices: Iterable[NcclChoice]) -> str:
    """Return algorithms and protocols by size, the first size of each.

    >>> sizes = ((1024, "TREE", "LL"), (2048, "TREE", "LL"), (4096, "RING", "SIMPLE"))
    >>> kind = CollectiveKind.ALL_REDUCE
    >>> choices_text(NcclChoice(kind=kind, bytes=n, algorithm=a, protocol=p) for n, a, p in sizes)
    'TREE/LL from 1,024 bytes, RING/SIMPLE from 4,096'
    """
    parts: list[str] = []
    name = ""
    for choice in sorted(choices, key=lambda choice: choice.bytes):
        if choice.name != name:
            unit = "" if parts else " bytes"
            parts.append(f"{choice.name} from {count(choice.bytes)}{unit}")
            name = choice.name
    return ", ".join(parts)


def _choices(group: ConditionGroup, places: Sequence[Allocation]) -> Iterator[str]:
    """Yield what NCCL chose in each allocation, by its first record that has it."""
    kinds, has_nvls = kinds_of(places), False
    for place in places:
        of_records = (r.microbenchmark.nccl for r in place.records if r.microbenchmark)
        choices = [c for c in next(filter(None, of_records), ()) if c.kind is place.kind]
        if choices:
            yield f"NCCL's choice on {_label(group, place, kinds)}: {choices_text(choices)}."
            has_nvls = has_nvls or any(c.algorithm.startswith("NVLS") for c in choices)
    if has_nvls:
        yield NVLS


def _sheet(group: ConditionGroup) -> Sheet:
    """Return every point of every cell."""
    rows = [
        (
            *(record.slug, record.cell.gpus, record.cell.nodes, point.bytes, point.sent),
            *(point.trials, point.median_s, point.min_s, point.max_s),
            allocation.bus_gb_per_s(point.bytes, point.typical_s) if point.typical_s else None,
            *(point.lower_quartile_s, point.upper_quartile_s, point.delayed),
            *(point.kind.value, point.launched_late),
            *_choice_of(record, point),
        )
        for allocation in allocations(group)
        for record, point in allocation.points
    ]
    names = "cell gpus nodes bytes sent trials median_s min_s max_s bus_gb_per_s"
    quartiles = "lower_quartile_s upper_quartile_s delayed"
    more = "collective launched_late algorithm protocol channels"
    columns = (*names.split(), *quartiles.split(), *more.split())
    return Sheet(columns=columns, rows=tuple(rows))


class FitLine(NamedTuple):
    """The fit to the times of an allocation."""

    gpus: int
    nodes: int
    collective: str
    startup_s: float
    startup: Annotated[float, Shown("startup, us", microseconds, on_page_only=True)]
    small_algorithm_gb_per_s: Annotated[Number, Shown("to knee", gb_per_s, "algbw, GB/s")]
    large_algorithm_gb_per_s: Annotated[Number, Shown("beyond", gb_per_s, "algbw, GB/s")]
    knee_bytes: Annotated[int, Shown("knee, bytes", count)]
    median_residual: Annotated[Number, Shown("median", percent, "residual, %")]
    worst_residual: Annotated[Number, Shown("worst", percent, "residual, %")]
    result: Annotated[str, Shown("result", words=True)]

    @classmethod
    def of(cls, allocation: Allocation, fit: TwoSlopes) -> Self:
        """Return the line of a fit."""
        return cls(
            gpus=allocation.gpus,
            nodes=allocation.nodes,
            collective=allocation.kind.value,
            startup_s=fit.startup_s,
            startup=fit.startup_s,
            small_algorithm_gb_per_s=_small_gb_per_s(fit),
            large_algorithm_gb_per_s=_large_gb_per_s(fit, max(allocation.times_s)),
            knee_bytes=fit.knee_bytes,
            median_residual=fit.median_residual,
            worst_residual=fit.worst_residual,
            result=_judgement(fit),
        )


def _judgement(fit: TwoSlopes) -> str:
    """Return whether the fit describes the times."""
    if fit.median_residual is None or fit.worst_residual is None:
        return "not judged: fewer than three sizes of 64 KiB or more"
    if fit.describes:
        return "describes the times"
    return (
        f"does not describe the times (median residual {percent(fit.median_residual)} %, worst "
        f"{percent(fit.worst_residual)} %)"
    )


def fits(group: ConditionGroup) -> Table | None:
    """Return startup and speeds by the fits; None if nothing can be fitted."""
    places = allocations(group)
    kinds = kinds_of(places)
    items = [
        (_label(group, allocation, kinds), FitLine.of(allocation, fit))
        for allocation in places
        if (fit := fit_two_slopes(allocation.times_s))
    ]
    if not items:
        return None
    text = TableText("fit", "Microbenchmark: fit", "", (FIT,), on_screen=False)
    return item_table([group], text, items, columns_of(FitLine))


def _small_gb_per_s(fit: TwoSlopes) -> float | None:
    """Return the speed up to the knee; None where its time vanishes in the startup."""
    if fit.small_s_per_byte * fit.knee_bytes < RESOLVED * fit.startup_s:
        return None
    return 1 / fit.small_s_per_byte / 1e9


def _large_gb_per_s(fit: TwoSlopes, largest: int) -> float | None:
    """Return the speed beyond the knee; None where larger messages take no longer."""
    if fit.large_s_per_byte * (largest - fit.knee_bytes) < RESOLVED * fit.time_s(fit.knee_bytes):
        return None
    return 1 / fit.large_s_per_byte / 1e9
