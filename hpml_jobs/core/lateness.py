"""The ranks that the others wait for: how late they are, and in which phase."""

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from statistics import median
from typing import NamedTuple

from hpml_jobs.core.measurements import Phases, Role
from hpml_jobs.core.record import Rank, Record


class Work(StrEnum):
    """A phase in which a rank works: everything but exposed communication."""

    LOADING = "data loading"
    COPIES = "copies to the device"
    FORWARD = "forward"
    BACKWARD = "backward"
    PACKING = "packing gradients"
    OPTIMIZER = "optimizer"


SECONDS: Mapping[Work, Callable[[Phases], float]] = {
    Work.LOADING: lambda phases: phases.stall_s,
    Work.COPIES: lambda phases: phases.h2d_s,
    Work.FORWARD: lambda phases: phases.forward_s - phases.comm_forward_s,
    Work.BACKWARD: lambda phases: phases.backward_s - phases.pack_s,
    Work.PACKING: lambda phases: phases.pack_s,
    Work.OPTIMIZER: lambda phases: phases.optimizer_s - phases.comm_optimizer_s,
}
"""Seconds of each phase in which a rank works.

Packing is the part of backward that copies gradients into and out of messages, and averages them.
"""


class Late(NamedTuple):
    """A rank that others wait for, and the phase in which it works longer by `late_s`."""

    rank: Rank
    phase: Work
    late_s: float


class Lateness(NamedTuple):
    """The late ranks of the instrumented epoch, in the order of their numbers.

    A single one is compared, by all of its work, with the rank that works least, and its phase is
    the one with the largest excess over the other ranks; `late_ranks` counts those that are late by
    more than half as much. Of several, `late_s` is the excess in the phase over the rank that is
    shortest in it. `share` is the part of the epoch of the largest `late_s`.
    """

    late: tuple[Late, ...]
    share: float
    late_ranks: int
    iterations: int


def lateness_of(record: Record, limit: float) -> Lateness | None:
    """Return which ranks the others wait for; None if there is one rank, or without phases.

    Ranks may work equally long and yet wait: one is late in loading, another one in forward, with a
    collective between. So all that are longer in a phase by more than the share `limit` of the
    epoch are named where the rank with the most work waits as long itself, or works about as long;
    not those that are late by less than a quarter of the largest lateness.
    """
    epochs = [rank.epoch(Role.INSTRUMENTED) for rank in record.ranks]
    phases = {rank.rank: rank.phases for rank in record.ranks if rank.phases}
    if len(phases) < max(2, len(record.ranks)):
        return None
    whole_s = max(epoch.epoch_s for epoch in epochs if epoch)
    work_s = {
        rank.rank: epoch.epoch_s - phases[rank.rank].exposed_s
        for rank, epoch in zip(record.ranks, epochs, strict=True)
        if epoch
    }
    late = max(record.ranks, key=lambda rank: (work_s[rank.rank], -rank.rank))
    least_s = min(work_s.values())
    late_s = work_s[late.rank] - least_s
    is_late = {number: work_s[number] - least_s > late_s / 2 for number in work_s}
    waits_s = phases[late.rank].exposed_s - (record.exchange_s or math.inf)
    in_phases = [_longest_in(phase, record.ranks, phases) for phase in Work]
    limit_s = max(limit * whole_s, max(longest.late_s for longest in in_phases) / 4)
    several = [
        longest
        for longest in in_phases
        if longest.late_s > limit_s
        and (waits_s > limit * whole_s or (late_s > limit * whole_s and is_late[longest.rank.rank]))
    ]
    if {longest.rank.rank for longest in several} <= {late.rank}:
        others = [of_rank for number, of_rank in phases.items() if number != late.rank]
        excess_s = {
            phase: seconds(phases[late.rank]) - median(map(seconds, others))
            for phase, seconds in SECONDS.items()
        }
        several = [Late(late, max(excess_s, key=excess_s.__getitem__), late_s)]
    return Lateness(
        late=tuple(sorted(several, key=lambda each: each.rank.rank)),
        share=max(each.late_s for each in several) / whole_s,
        late_ranks=sum(is_late.values()),
        iterations=max(1, *(epoch.iterations for epoch in epochs if epoch)),
    )


def _longest_in(phase: Work, ranks: Sequence[Rank], phases: Mapping[int, Phases]) -> Late:
    """Return the rank with the longest phase, compared with the shortest."""
    seconds = {number: SECONDS[phase](of_rank) for number, of_rank in phases.items()}
    rank = max(ranks, key=lambda rank: (seconds[rank.rank], -rank.rank))
    return Late(rank, phase, seconds[rank.rank] - min(seconds.values()))
