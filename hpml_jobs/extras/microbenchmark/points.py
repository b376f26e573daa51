"""The microbenchmark: its points by collective and size, and the allocations that measured it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from hpml_jobs.core import formulas
from hpml_jobs.core.disturbance import outside_causes
from hpml_jobs.core.measurements import CollectiveKind, MicrobenchmarkPoint, Step
from hpml_jobs.core.record import Record
from hpml_jobs.report.frame.table import Sheet
from hpml_jobs.results.groups import ConditionGroup

FACTORS = {
    CollectiveKind.ALL_REDUCE: "2(N-1)/N",
    CollectiveKind.ALL_GATHER: "(N-1)/N",
    CollectiveKind.REDUCE_SCATTER: "(N-1)/N",
    CollectiveKind.BROADCAST: "1",
}
"""The bus factors of `formulas.bus_factor` in words."""


def quiet_microbenchmarks(records: Iterable[Record]) -> list[Record]:
    """Return the records with a microbenchmark that nothing disturbed; all of them if each was."""
    measured = [record for record in records if record.microbenchmark]
    quiet = [
        record for record in measured if not outside_causes(record, Step.MICROBENCHMARK)
    ]
    return quiet or measured


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
        return formulas.pooled(
            record.microbenchmark.times_of(self.kind)
            for record in quiet_microbenchmarks(self.records)
            if record.microbenchmark
        )

    def bus_gb_per_s(self, size: int, seconds: float) -> float:
        """Return the bus bandwidth of a message of this collective."""
        return formulas.bus_gb_per_s(size, seconds, self.gpus, self.kind)


def allocations(group: ConditionGroup) -> list[Allocation]:
    """Return every allocation with a microbenchmark, by collective, GPUs and nodes."""
    records_by_place: dict[tuple[CollectiveKind, int, int], list[Record]] = {}
    for row in group.timed:
        for record in group.records(row):
            for kind in record.microbenchmark.kinds if record.microbenchmark else ():
                records_by_place.setdefault((kind, row.gpus, row.nodes), []).append(
                    record
                )
    order = [*CollectiveKind]

    def in_order(place: tuple[CollectiveKind, int, int]) -> tuple[int, int, int]:
        kind, gpus, nodes = place
        return order.index(kind), gpus, nodes

    return [
        Allocation(gpus, nodes, kind, tuple(records_by_place[kind, gpus, nodes]))
        for kind, gpus, nodes in sorted(records_by_place, key=in_order)
    ]


def kinds_of(places: Iterable[Allocation]) -> list[CollectiveKind]:
    """Return the collectives of some allocations."""
    return list(dict.fromkeys(place.kind for place in places))


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
    factors = (
        f"{kind.words}: {FACTORS[kind]}{bytes_of.get(kind, '')}" for kind in kinds
    )
    return f"factor ({'; '.join(factors)})"


def _choice_of(
    record: Record, point: MicrobenchmarkPoint
) -> tuple[str | None, str | None, int | None]:
    """Return NCCL's algorithm, protocol and number of channels of a point; None if not known."""
    choices = (record.microbenchmark and record.microbenchmark.nccl) or ()
    for choice in choices:
        if (choice.kind, choice.bytes) == (point.kind, point.bytes):
            return choice.algorithm, choice.protocol, choice.channels
    return None, None, None


def _speed(allocation: Allocation, point: MicrobenchmarkPoint) -> float | None:
    if not point.typical_s:
        return None
    return allocation.bus_gb_per_s(point.bytes, point.typical_s)


def points(group: ConditionGroup) -> Sheet | None:
    """Return every point of every cell; None without a microbenchmark."""
    rows = [
        (
            *(
                record.slug,
                record.cell.gpus,
                record.cell.nodes,
                point.bytes,
                point.sent,
            ),
            *(point.trials, point.median_s, point.min_s, point.max_s),
            _speed(allocation, point),
            *(point.lower_quartile_s, point.upper_quartile_s, point.delayed),
            *(point.kind.value, point.launched_late),
            *_choice_of(record, point),
        )
        for allocation in allocations(group)
        for record, point in allocation.points
    ]
    return Sheet(columns=_COLUMNS, rows=tuple(rows)) if rows else None


_COLUMNS = (
    *("cell", "gpus", "nodes", "bytes", "sent"),
    *("trials", "median_s", "min_s", "max_s"),
    "bus_gb_per_s",
    *("lower_quartile_s", "upper_quartile_s", "delayed"),
    *("collective", "launched_late"),
    *("algorithm", "protocol", "channels"),
)
"""The columns of a point, in the order of its values."""
