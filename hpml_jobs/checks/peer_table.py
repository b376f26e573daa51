"""Comparison of the cells of one table by what they should have in common, to find outliers."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from statistics import median
from typing import Any, NamedTuple

from hpml_jobs.checks.limits import APART_LIMIT, EFFICIENCY_LIMIT
from hpml_jobs.checks.peers import Peer
from hpml_jobs.core.cell import Cell
from hpml_jobs.core.formulas import efficiency, speedup
from hpml_jobs.core.statistics import Interval, ratio_interval


class Efficiency(NamedTuple):
    """The parallel efficiency of a row, with data loading and without (None: not known).

    `peer` is one of its runs. `interval` is the bootstrap interval; None: below the limit, or a
    single run of the row or of its baseline.
    """

    peer: Peer
    with_loading: float
    without_loading: float | None
    interval: Interval | None = None

    @property
    def is_too_high(self) -> bool:
        """Whether N GPUs are more than N times as fast as one, by medians."""
        return self.with_loading > EFFICIENCY_LIMIT

    @property
    def is_certain(self) -> bool:
        """Whether the interval is above the limit too."""
        return self.interval is not None and self.interval.low > EFFICIENCY_LIMIT

    @property
    def is_explained(self) -> bool:
        """Whether it is within the limit without data loading."""
        return self.without_loading is not None and self.without_loading <= EFFICIENCY_LIMIT


class ByValue:
    """Peers by a value that they should have in common; peers without a value are left out."""

    def __init__(self, peers: Iterable[Peer], value: Callable[[Peer], tuple[Any, ...]]) -> None:
        self.value = value
        self.peers = [peer for peer in peers if value(peer)]
        numbers: dict[tuple[Any, ...], int] = {}
        self._numbers = [numbers.setdefault(value(peer), len(numbers)) for peer in self.peers]
        self._number_of = numbers

    def differing(self, peer: Peer) -> list[Peer]:
        """Return the peers with another value."""
        if len(self._number_of) < 2:
            return []
        value_number = self._number_of.get(self.value(peer))
        numbered = zip(self.peers, self._numbers, strict=True)
        return [other for other, number in numbered if number != value_number]

    def other_values(self, peer: Peer) -> list[tuple[Any, ...]]:
        """Return the values that other peers have, each once."""
        return [value for value in self._number_of if value != self.value(peer)]


class ByStart:
    """Peers by when they started; a day apart is different."""

    def __init__(self, peers: Iterable[Peer]) -> None:
        self.peers = [peer for peer in peers if peer.started]
        dated = [(peer.started, number) for number, peer in enumerate(self.peers) if peer.started]
        self._numbers = [number for _, number in sorted(dated)]
        self.starts = [started for started, _ in sorted(dated)]

    def differing(self, peer: Peer) -> list[Peer]:
        """Return the peers that started more than a day before or after."""
        if peer.started is None:
            return []
        first = bisect_left(self.starts, peer.started - APART_LIMIT)
        last = bisect_right(self.starts, peer.started + APART_LIMIT)
        apart = sorted(self._numbers[:first] + self._numbers[last:])
        return [self.peers[number] for number in apart]


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
        clocks = {peer.slug: _clocks_mhz(peer) for peer in peers}
        self.clocked = [slug for slug, of_cell in clocks.items() if of_cell]
        medians = [median(of_cell) for of_cell in clocks.values() if of_cell]
        self.median_clock_mhz = median(medians) if len(medians) > 1 else None
        self.whole_seconds = all(epoch_s == round(epoch_s) for epoch_s in self.imported_s)

    def baselines(self, peer: Peer) -> Sequence[Peer]:
        """Return the cells that a peer's speedup divides by, at its batch and training path."""
        return self._baselines.get(peer.comparison, ())

    def runs_s(self, peer: Peer) -> tuple[float, ...]:
        """Return the seconds of the runs of a peer's row that count."""
        return tuple(run.epoch_s for run in self._runs[peer.place])

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
        base_s, row_s = tuple(baseline.epoch_s for baseline in baselines), self.runs_s(peer)
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
        return reached._replace(interval=of_speedup and of_speedup.divided_by(gpus))

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

    @staticmethod
    def is_outlier(peer: Peer, differing: Sequence[Peer], count: int) -> bool:
        """Return whether a peer differs from its baseline, or from half of the others or more.

        `count` is the number of all peers, this one included. The rule names one outlier instead
        of all the others.
        """
        if any(other.is_baseline and other.comparison == peer.comparison for other in differing):
            return True
        return bool(differing) and 2 * len(differing) >= count - 1


def _clocks_mhz(peer: Peer) -> list[int]:
    """Return the SM clocks of a cell's GPUs in its timed epoch."""
    cards = (card for rank in peer.record.ranks for card in rank.cards)
    return [clock for card in cards if (clock := card.clock_mhz) is not None]


def _rivalry(peer: Peer) -> tuple[int, int, str]:
    """Batch, GPUs, treatment: cells that have the same are compared with each other."""
    return peer.place.batch, peer.place.gpus, peer.place.treatment


def _workers_per_gpu(peer: Peer) -> tuple[Fraction, ...]:
    return (Fraction(peer.workers, peer.place.gpus),) if peer.record.ranks else ()
