"""A record with what it is compared by in its study, and the comparison of one table's cells."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import accumulate
from statistics import median
from typing import Any, NamedTuple

import msgspec

from hpml_jobs.checks.result import NAMED
from hpml_jobs.core.cell import Cell, Protocol
from hpml_jobs.core.conditions import Conditions, measured_conditions, remarked_conditions
from hpml_jobs.core.disturbance import outside_causes
from hpml_jobs.core.formulas import efficiency, speedup
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.noise import epoch_error, error_of_median, known_interval
from hpml_jobs.core.record import Record
from hpml_jobs.core.statistics import Interval, ratio_interval
from hpml_jobs.core.text import iso_time

EFFICIENCY_LIMIT = 1.05
APART_LIMIT = timedelta(days=1)


class Peer(NamedTuple):
    """A record with what it is compared by; `table` is what cells of one table have in common."""

    record: Record
    table: tuple[object, ...]
    place: Cell  # the cell, whichever repeat or seed of it
    comparison: tuple[int, str]  # batch, training path: speedups are ratios of equal ones
    epoch_s: float
    train_s: float | None
    conditions: Conditions
    remarks: Conditions
    started: datetime | None
    ended: datetime | None
    hosts: frozenset[str]
    uuids: frozenset[str]
    workers: int
    threads: tuple[int, ...]
    is_baseline: bool  # speedups of its batch divide by it
    is_disturbed: bool  # its timed epoch, by a measured outside cause

    @property
    def slug(self) -> str:
        """The cell's name."""
        return self.record.slug


def _peer_of(record: Record) -> Peer:
    """Return a record with what it is compared by."""
    cell = record.cell
    date = record.imported.date if record.imported else None
    return Peer(
        record=record,
        table=(
            *(cell.workload, cell.device, cell.gpu_type, cell.loader, cell.script),
            cell.protocol is Protocol.IMPORTED,
        ),
        place=msgspec.structs.replace(cell, repeat=0, seed=0),
        comparison=(cell.batch, cell.path.label),
        epoch_s=record.epoch_s,
        train_s=record.train_s,
        conditions=() if record.imported else measured_conditions(record) or (),
        remarks=() if record.imported else remarked_conditions(record),
        started=_moment(date or record.attempt.started),
        ended=_moment(record.attempt.ended),
        hosts=frozenset(record.attempt.hosts) | {rank.host for rank in record.ranks},
        uuids=frozenset(uuid for rank in record.ranks for uuid in rank.device_uuids),
        workers=sum(rank.loader_workers for rank in record.ranks),
        threads=tuple(sorted({rank.threads for rank in record.ranks})),
        is_baseline=cell.is_baseline,
        is_disturbed=bool(outside_causes(record)),
    )


def peers_of(records: Iterable[Record]) -> list[Peer]:
    """Return records with what they are compared by, in their order.

    Peers of one place have one object for it, because equal ones are compared key by key.
    """
    places: dict[Cell, Cell] = {}
    return [
        peer._replace(place=places.setdefault(peer.place, peer.place))
        for peer in map(_peer_of, records)
    ]


def _moment(text: str) -> datetime | None:
    moment = iso_time(text)
    return moment if moment is None or moment.tzinfo else moment.replace(tzinfo=UTC)


class Efficiency(NamedTuple):
    """The parallel efficiency of a row, with data loading and without (None: not known).

    `peer` is one of its runs. `interval` is the bootstrap interval; None: below the limit, or a
    single run of the row or of its baseline, whose own noise gives `of_one_run`.
    """

    peer: Peer
    with_loading: float
    without_loading: float | None
    interval: Interval | None = None
    of_one_run: Interval | None = None

    def __str__(self) -> str:
        """With its interval, where it has one."""
        interval = self.interval
        between = f" [{interval.low:.3g}, {interval.high:.3g}]" if interval else ""
        return f"{self.with_loading:.3g}{between}"

    @property
    def is_too_high(self) -> bool:
        """Whether N GPUs are more than N times as fast as one, by medians.

        Of single runs it is the lower end that their noise leaves.
        """
        lower = self.of_one_run.low if self.of_one_run else self.with_loading
        return lower > EFFICIENCY_LIMIT

    @property
    def is_certain(self) -> bool:
        """Whether the interval is above the limit too."""
        return self.interval is not None and self.interval.low > EFFICIENCY_LIMIT

    @property
    def is_explained(self) -> bool:
        """Whether it is within the limit without data loading."""
        return self.without_loading is not None and self.without_loading <= EFFICIENCY_LIMIT


class Differing(NamedTuple):
    """The peers that differ from one: the first of them, to be named, and their number."""

    first: Sequence[Peer]
    number: int
    of_baseline: bool  # its baseline is one of them

    def is_outlier_of(self, peers: Sequence[Peer]) -> bool:
        """Return whether the peer differs from its baseline, or from half of the others or more.

        `peers` are all, this one included. The rule names one outlier instead of all the others.
        """
        return self.of_baseline or (self.number > 0 and 2 * self.number >= len(peers) - 1)


class ByValue:
    """Peers by a value that they should have in common; peers without a value are left out."""

    def __init__(self, peers: Iterable[Peer], value: Callable[[Peer], tuple[Any, ...]]) -> None:
        self.value = value
        self.peers = [peer for peer in peers if value(peer)]
        self._values = dict.fromkeys(map(value, self.peers))
        self._others: dict[tuple[Any, ...], tuple[list[Peer], int, set[tuple[int, str]]]] = {}

    def differing(self, peer: Peer) -> Differing:
        """Return the peers with another value."""
        own = self.value(peer)
        if own not in self._others:
            others = [other for other in self.peers if self.value(other) != own]
            baselines = {other.comparison for other in others if other.is_baseline}
            self._others[own] = others[:NAMED], len(others), baselines
        first, number, baselines = self._others[own]
        return Differing(first, number, peer.comparison in baselines)

    def other_values(self, peer: Peer) -> list[tuple[Any, ...]]:
        """Return the values that other peers have, each once."""
        return [value for value in self._values if value != self.value(peer)]


class ByStart:
    """Peers by when they started; a day apart is different."""

    def __init__(self, peers: Iterable[Peer]) -> None:
        self.peers = [peer for peer in peers if peer.started]
        ordered = sorted((p.started, number) for number, p in enumerate(self.peers) if p.started)
        self.starts = [started for started, _ in ordered]
        numbers = [[number] for _, number in ordered]
        none: list[int] = []
        # Of the n peers that started first, and of the n that started last: the first to name.
        self._of_first = list(accumulate(numbers, _to_name, initial=none))
        self._of_last = list(accumulate(reversed(numbers), _to_name, initial=none))
        self._baselines: dict[object, list[datetime]] = {}
        for started, number in ordered:
            if self.peers[number].is_baseline:
                self._baselines.setdefault(self.peers[number].comparison, []).append(started)

    def differing(self, peer: Peer) -> Differing:
        """Return the peers that started more than a day before or after."""
        if peer.started is None:
            return Differing((), 0, of_baseline=False)
        earliest, latest = peer.started - APART_LIMIT, peer.started + APART_LIMIT
        before = bisect_left(self.starts, earliest)
        after = len(self.starts) - bisect_right(self.starts, latest)
        first = _to_name(self._of_first[before], self._of_last[after])
        baselines = self._baselines.get(peer.comparison, [peer.started])
        return Differing(
            [self.peers[number] for number in first],
            before + after,
            of_baseline=baselines[0] < earliest or baselines[-1] > latest,
        )


def _to_name(some: list[int], others: list[int]) -> list[int]:
    return sorted(some + others)[:NAMED]


class PeerTable:
    """The peers of one table, in the study's order."""

    def __init__(self, peers: Sequence[Peer]) -> None:
        self._baselines: dict[tuple[int, str], list[Peer]] = {}  # what speedups divide by
        self._runs: dict[Cell, list[Peer]] = {}  # by place: the runs that count
        self._rivals: dict[tuple[int, int, str], list[Peer]] = {}
        self._parallel: dict[tuple[int, str], dict[Cell, Peer]] = {}  # more than one GPU
        self._efficiencies: dict[Cell, Efficiency | None] = {}
        quiet = {peer.place for peer in peers if not peer.is_disturbed}
        for peer in peers:
            counts = not peer.is_disturbed or peer.place not in quiet
            if counts:
                self._runs.setdefault(peer.place, []).append(peer)
            if peer.is_baseline and not counts:
                continue
            if peer.is_baseline:
                self._baselines.setdefault(peer.comparison, []).append(peer)
            else:
                self._rivals.setdefault(_rivalry(peer), []).append(peer)
            if peer.place.gpus > 1:
                self._parallel.setdefault(peer.comparison, {}).setdefault(peer.place, peer)
        self.runs_s = {
            place: tuple(run.epoch_s for run in runs) for place, runs in self._runs.items()
        }
        """By place, the seconds of the runs of a row that count."""
        self.conditions = ByValue(peers, lambda peer: peer.conditions)
        self.remarks = ByValue(peers, lambda peer: peer.remarks)
        self.threads = ByValue(peers, lambda peer: peer.threads)
        self.starts = ByStart(peers)
        self._loaders: dict[tuple[int, int, str], ByValue] = {}
        self.imported_s = [
            peer.epoch_s
            for peer in peers
            if peer.record.imported and peer.record.imported.rate is None
        ]
        clocks = {  # of the SMs in the timed epoch, in MHz
            peer.slug: [card.clock_mhz for card in peer.record.cards if card.clock_mhz is not None]
            for peer in peers
        }
        self.clocked = [slug for slug, of_cell in clocks.items() if of_cell]
        medians = [median(of_cell) for of_cell in clocks.values() if of_cell]
        self.median_clock_mhz = median(medians) if len(medians) > 1 else None
        self.whole_seconds = all(epoch_s == round(epoch_s) for epoch_s in self.imported_s)

    def baselines(self, peer: Peer) -> Sequence[Peer]:
        """Return the cells that a peer's speedup divides by, at its batch and training path."""
        return self._baselines.get(peer.comparison, ())

    def efficiency(self, peer: Peer) -> Efficiency | None:
        """Return the efficiency of a peer's row: median over its runs against the median baseline.

        None on one GPU and without a baseline at its batch.
        """
        if peer.place not in self._efficiencies:
            self._efficiencies[peer.place] = self._efficiency(peer)
        return self._efficiencies[peer.place]

    def _efficiency(self, peer: Peer) -> Efficiency | None:
        gpus, baselines = peer.place.gpus, self.baselines(peer)
        if gpus < 2 or not baselines:
            return None
        base_s, row_s = tuple(baseline.epoch_s for baseline in baselines), self.runs_s[peer.place]
        times_s = [
            [run.train_s for run in runs if run.train_s]
            for runs in (baselines, self._runs[peer.place])
        ]
        trained = [median(of_runs) for of_runs in times_s if of_runs]
        reached = Efficiency(
            peer,
            efficiency(speedup(median(base_s), median(row_s)), gpus),
            efficiency(speedup(*trained), gpus) if len(trained) > 1 else None,
        )
        if not reached.is_too_high or reached.is_explained:
            return reached
        of_speedup = ratio_interval(base_s, row_s)
        if of_speedup:
            return reached._replace(interval=of_speedup.divided_by(gpus))
        rows = ((base_s, baselines), (row_s, self._runs[peer.place]))
        # Not by the instrumented epoch: it may differ because the timed one is wrong.
        errors = [error_of_median(s, map(_noise, runs)) for s, runs in rows]
        return reached._replace(of_one_run=known_interval(reached.with_loading, *errors))

    def efficiencies(self, baseline: Peer) -> list[Efficiency]:
        """Return the efficiencies of all rows with more than one GPU that divide by a peer."""
        rows = self._parallel.get(baseline.comparison, {}).values()
        return [reached for peer in rows if (reached := self.efficiency(peer))]

    def loaders(self, peer: Peer) -> ByValue:
        """Return a peer's baselines and its rivals, by their loader workers per GPU."""
        key = _rivalry(peer)
        if key not in self._loaders:
            compared = [*self.baselines(peer), *self._rivals.get(key, ())]
            self._loaders[key] = ByValue(compared, _workers_per_gpu)
        return self._loaders[key]


def _noise(peer: Peer) -> float | None:
    return epoch_error(peer.record, Role.TIMED)


def _rivalry(peer: Peer) -> tuple[int, int, str]:
    """Batch, GPUs, treatment: cells that have the same are compared with each other."""
    return peer.place.batch, peer.place.gpus, peer.place.treatment


def _workers_per_gpu(peer: Peer) -> tuple[Fraction, ...]:
    return (Fraction(peer.workers, peer.place.gpus),) if peer.record.ranks else ()
