"""Causes of a gap to the ideal speedup, and what each takes of it."""

from collections.abc import Mapping
from enum import StrEnum
from itertools import combinations
from math import comb

from hpml_jobs.core.errors import HpmlError


class GapCause(StrEnum):
    """What takes a part of the ideal speedup."""

    EXCHANGE = "exchange"
    LOADER = "loader"
    WAITING = "waiting"
    CPUS = "CPUs"
    UNEXPLAINED = "unexplained"


CAUSES = (GapCause.EXCHANGE, GapCause.LOADER, GapCause.WAITING, GapCause.CPUS)
"""The causes that an epoch can be replayed without."""

Causes = frozenset[GapCause]

EACH_OTHER = "each other"
"""What ranks wait for where none of them is late."""


class NoReplayError(HpmlError):
    """A run that cannot be replayed; the message says why."""


Parts = dict[GapCause, float]
"""What each known cause takes of the ideal speedup, and what is unexplained."""

SETS: tuple[Causes, ...] = tuple(
    frozenset(chosen)
    for size in range(len(CAUSES) + 1)
    for chosen in combinations(CAUSES, size)
)
"""All sets of causes, the empty one first, that of all causes last."""

_STEPS = {
    cause: [
        (
            causes,
            causes | {cause},
            1 / (len(CAUSES) * comb(len(CAUSES) - 1, len(causes))),
        )
        for causes in SETS
        if cause not in causes
    ]
    for cause in CAUSES
}
"""For each cause the sets that it may be removed after, with the share of all orders."""


def shapley(speedup_without: Mapping[Causes, float], ideal: float) -> Parts:
    """Return what each cause takes of the ideal speedup; with the unexplained they sum to the gap.

    `speedup_without` is the speedup without each of `SETS`. A cause takes the mean of what its
    removal gains over all orders in which the causes may be removed. Shapley, 1953.

    >>> both = {GapCause.LOADER, GapCause.WAITING}
    >>> side_by_side = {causes: 2.0 if causes >= both else 1.0 for causes in SETS}
    >>> [round(part, 2) for part in shapley(side_by_side, 2.2).values()]
    [0.0, 0.5, 0.5, 0.0, 0.2]
    """
    parts = {
        cause: sum(
            share * (speedup_without[after] - speedup_without[before])
            for before, after, share in steps
        )
        for cause, steps in _STEPS.items()
    }
    return parts | {GapCause.UNEXPLAINED: ideal - speedup_without[SETS[-1]]}


def removable(
    speedup_without: Mapping[Causes, float], cause: GapCause, part: float
) -> Causes | None:
    """Return the cause alone, or with another one where the two run side by side; None for neither.

    Its removal alone must gain at least half of its part. Otherwise another cause hides it, and
    without both at least its whole part must be gained.
    """
    measured = speedup_without[frozenset()]
    alone = frozenset({cause})
    if speedup_without[alone] - measured >= part / 2:
        return alone
    pairs = [alone | {other} for other in CAUSES if other is not cause]
    best = max(pairs, key=speedup_without.__getitem__)
    return best if speedup_without[best] - measured >= part else None
