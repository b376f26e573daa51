"""The cells of one table, sorted once by everything they are compared by.

Every cell is compared with all others; no check walks through all of them for each.
"""

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any, Generic, NamedTuple, TypeVar

from hpml_jobs.checks.peer_groups import Days, Kinds
from hpml_jobs.checks.peers import Peer
from hpml_jobs.core.cell import Cell
from hpml_jobs.core.conditions import Conditions

Sorted = TypeVar("Sorted", bound=Kinds[Any] | Days)


class Aspect(NamedTuple, Generic[Sorted]):
    """All cells of a table by one thing, and the baselines of each batch by it."""

    everyone: Sorted
    baselines: dict[int, Sorted]

    def odd(self, me: Peer) -> bool:
        """Whether a cell stands apart: from its baseline, or from half of the others or more.

        So one odd cell is named, and not all the others with it.
        """
        ones = self.baselines.get(me.place.batch)
        if ones and ones.unlike(me).total:
            return True
        unlike = self.everyone.unlike(me).total
        return bool(unlike) and 2 * unlike >= self.everyone.known - 1


class Table:
    """The cells of one table, given in the study's order."""

    baselines: dict[int, list[Peer]]
    """By batch, what speedups divide by: the plain loop on one GPU, nothing done to it."""

    runs_s: dict[Cell, list[float]]
    """By place, seconds per epoch of all its runs."""

    def __init__(self, cells: Sequence[Peer]) -> None:
        self.baselines, self.runs_s = {}, {}
        rivals: dict[tuple[int, int, str], list[Peer]] = {}
        for one in cells:
            self.runs_s.setdefault(one.place, []).append(one.epoch_s)
            if one.is_baseline:
                self.baselines.setdefault(one.place.batch, []).append(one)
            else:
                rivals.setdefault(_rivalry(one), []).append(one)
        self.conditions = self._by(cells, lambda found: Kinds(found, _conditions))
        self.threads = self._by(cells, lambda found: Kinds(found, _threads))
        self.days = self._by(cells, Days)
        self._loaders = {
            place: Kinds(
                [*self.baselines.get(place[0], ()), *rivals.get(place, ())], _workers_per_gpu
            )
            for place in dict.fromkeys(map(_rivalry, cells))
        }
        self.imported_s = [one.epoch_s for one in cells if one.record.imported]
        self.whole_seconds = all(epoch_s == round(epoch_s) for epoch_s in self.imported_s)

    def _by(
        self, cells: Iterable[Peer], index: Callable[[Iterable[Peer]], Sorted]
    ) -> Aspect[Sorted]:
        ones = {batch: index(own) for batch, own in self.baselines.items()}
        return Aspect(index(cells), ones)

    def loaders(self, me: Peer) -> Kinds[tuple[Fraction, ...]]:
        """By loader workers per GPU: a cell's baselines, then its like on as many GPUs."""
        return self._loaders[_rivalry(me)]


def _rivalry(one: Peer) -> tuple[int, int, str]:
    """Batch, GPUs, treatment: cells that have the same are compared with each other."""
    return one.place.batch, one.place.gpus, one.place.treatment


def _conditions(one: Peer) -> Conditions:
    return one.conditions


def _threads(one: Peer) -> tuple[int, ...]:
    return one.threads


def _workers_per_gpu(one: Peer) -> tuple[Fraction, ...]:
    return (Fraction(one.workers, one.place.gpus),) if one.record.ranks else ()
