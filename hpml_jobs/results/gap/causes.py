"""Causes of a gap to the ideal speedup, and what each takes: by replays, or sums of seconds."""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import chain, combinations
from math import comb
from typing import Any

from hpml_jobs.core import formulas
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.rank import Rank
from hpml_jobs.core.text import listed
from hpml_jobs.results.figures import Figures
from hpml_jobs.results.rows import Row


class GapCause(StrEnum):
    """What takes a part of the ideal speedup."""

    EXCHANGE = "communication"
    LOADER = "data wait"
    WAITING = "waiting for the slowest process"
    CPUS = "waiting for a free CPU"
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


EPOCH, COMPUTE = "epoch", "compute"

Seconds = Mapping[str, float]
"""The known seconds of the timed epoch of one run, or medians: `epoch`, `compute` and by cause."""


def seconds_of(row: Row, figures: Figures) -> Seconds:
    """Return the known seconds of a run.

    What is measured in the instrumented epoch is its share of the timed one. The exchange has
    packing by hand in it; without phases it is what the epoch without exchange saves, waiting too.
    """
    instrumented_s = {
        GapCause.EXCHANGE: figures.others_exchange_s,
        GapCause.WAITING: figures.others_waiting_s,
        COMPUTE: figures.others_compute_s,
    }
    known_s: dict[str, float | None] = {
        EPOCH: figures.epoch_s,
        GapCause.LOADER: figures.others_stall_s,
        GapCause.CPUS: figures.others_run_queue_s,
    }
    if figures.overhead is not None:
        of_timed = 1 / (1 + figures.overhead)
        known_s |= {name: s and s * of_timed for name, s in instrumented_s.items()}
    else:
        known_s[GapCause.EXCHANGE] = figures.comm_cost_s
    if row.gpus == 1:
        known_s |= {GapCause.EXCHANGE: 0.0, GapCause.WAITING: 0.0}
    return {name: s for name, s in known_s.items() if s is not None}


def parts(
    times: Mapping[str, Any], reference: Mapping[str, Any], ideal: float
) -> dict[Any, Any]:
    """Return what each known cause takes of the ideal speedup; they sum to ideal - speedup.

    Only what the reference does not spend as well is lost, and waiting for a CPU only where it
    makes computation longer: a rank that waits for others needs no CPU meanwhile.

    Times are numbers, or arrays of one per draw; there NaN is what is not known.
    """
    import numpy as np  # noqa: PLC0415  (only where there is a gap)

    beyond_s = {
        name: formulas.beyond_ideal_s(times[name], reference[name], ideal)
        for name in times
        if name in reference
    }
    whole_s = beyond_s.pop(EPOCH)
    longer_s = beyond_s.pop(COMPUTE, None)
    if GapCause.CPUS in beyond_s:
        queued_s = beyond_s.pop(GapCause.CPUS)
        beyond_s |= (
            {} if longer_s is None else {GapCause.CPUS: np.minimum(queued_s, longer_s)}
        )
    if GapCause.WAITING in beyond_s and longer_s is not None:
        # What the late rank does, the reference does as well: the others compute less instead.
        # Unlike minimum, fmin takes 0 where it is not known how much longer they compute.
        beyond_s[GapCause.WAITING] = beyond_s[GapCause.WAITING] + np.fmin(0.0, longer_s)
    lost_s = {
        cause: np.maximum(0.0, beyond_s[cause])
        for cause in GapCause
        if cause in beyond_s
    }
    lost_s[GapCause.UNEXPLAINED] = whole_s - sum(map(np.nan_to_num, lost_s.values()))
    return {
        cause: formulas.lost_speedup(s, times[EPOCH], ideal)
        for cause, s in lost_s.items()
    }


def late_ranks(of_runs: Sequence[Sequence[Rank]], world_size: int) -> str:
    """Return the ranks that are late in all runs, with their host if it is one.

    All ranks of the world wait for each other.
    """
    ranks = list(chain.from_iterable(of_runs))
    counts = Counter(rank.rank for rank in ranks)
    late = sorted(number for number in counts if counts[number] == len(of_runs))
    if len(late) in (0, world_size):
        return EACH_OTHER
    hosts = {rank.host for rank in ranks if rank.rank in late}
    text = f"{'rank' if len(late) == 1 else 'ranks'} {listed(late)}"
    return f"{text} on {hosts.pop()}" if len(hosts) == 1 else text
