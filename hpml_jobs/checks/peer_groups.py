"""Cells by what they should have in common, sorted once: which of them is a cell unlike?"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any, Generic, NamedTuple, TypeVar

from hpml_jobs.checks.limits import APART_LIMIT
from hpml_jobs.checks.peers import Peer
from hpml_jobs.checks.result import NAMED, names

Numbered = tuple[int, Peer]
"""A cell, and where it stands among those it is compared with."""


class Unlike(NamedTuple):
    """The cells that one is unlike: how many they are, and the first of them."""

    total: int
    first: list[Peer]

    @property
    def names(self) -> str:
        """The first by name, and how many more there are."""
        return names((one.slug for one in self.first), self.total)


def _first(found: Iterable[Numbered]) -> list[Numbered]:
    return sorted(found, key=lambda numbered: numbered[0])[:NAMED]


Kind = TypeVar("Kind", bound=tuple[Any, ...])


class Kinds(Generic[Kind]):
    """Cells by something they should have in common, `of`; they are `known` where that is told."""

    def __init__(self, cells: Iterable[Peer], of: Callable[[Peer], Kind]) -> None:
        self._of = of
        self._kinds: dict[Kind, list[Numbered]] = {}
        for numbered in enumerate(cells):
            if kind := of(numbered[1]):
                self._kinds.setdefault(kind, []).append(numbered)
        self.known = sum(map(len, self._kinds.values()))

    def others(self, me: Peer) -> list[Kind]:
        """What cells have that are unlike this one."""
        own = self._of(me)
        return [kind for kind in self._kinds if kind != own]

    def unlike(self, me: Peer) -> Unlike:
        """The cells that have something else."""
        found = [self._kinds[kind] for kind in self.others(me)]
        first = _first(numbered for kind in found for numbered in kind[:NAMED])
        return Unlike(sum(map(len, found)), [one for _, one in first])


class Days:
    """Cells by when they began; they are `known` where that is told."""

    def __init__(self, cells: Iterable[Peer]) -> None:
        dated = [(one.begun, number, one) for number, one in enumerate(cells) if one.begun]
        dated.sort(key=lambda known: known[0])
        ordered = [(number, one) for _, number, one in dated]
        self._begun = [begun for begun, _, _ in dated]
        self._first_of_earliest = _first_so_far(ordered)
        self._first_of_latest = _first_so_far(ordered[::-1])
        self.known = len(dated)

    def longest(self, begun: datetime) -> timedelta:
        """How far the farthest of them began from a moment that is one of theirs."""
        return max(begun - self._begun[0], self._begun[-1] - begun)

    def unlike(self, me: Peer) -> Unlike:
        """The cells that began more than a day before or after."""
        if me.begun is None:
            return Unlike(0, [])
        mine = me.begun
        early = bisect_left(self._begun, -APART_LIMIT, key=lambda begun: begun - mine)
        late = self.known - bisect_right(self._begun, APART_LIMIT, key=lambda begun: begun - mine)
        first = _first(self._first_of_earliest[early] + self._first_of_latest[late])
        return Unlike(early + late, [one for _, one in first])


def _first_so_far(ordered: Iterable[Numbered]) -> list[list[Numbered]]:
    """At n, the first by number of the first n."""
    none: list[Numbered] = []
    return list(accumulate(ordered, lambda first, one: _first([*first, one]), initial=none))
