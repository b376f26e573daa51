"""The ranks that the others wait for: how late they are, and in which phase."""

from collections.abc import Callable, Mapping
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


class Lateness(NamedTuple):
    """The latest rank of the instrumented epoch, compared with the rank that works least.

    `late_s` is the difference of their epochs without exposed communication, `share` its part of
    the epoch. `phase` is the one with the largest excess over the other ranks. `late_ranks` counts
    the ranks that are late by more than half as much.
    """

    rank: Rank
    phase: Work
    late_s: float
    per_iteration_s: float
    share: float
    late_ranks: int


def lateness_of(record: Record) -> Lateness | None:
    """Return which rank the others wait for; None if there is one rank, or without phases."""
    work_s: dict[int, float] = {}
    phases: dict[int, Phases] = {}
    longest_s, iterations = 0.0, 1
    for rank in record.ranks:
        epoch = rank.epoch(Role.INSTRUMENTED)
        if epoch is None or epoch.phases is None:
            return None
        phases[rank.rank] = epoch.phases
        work_s[rank.rank] = epoch.epoch_s - epoch.phases.exposed_s
        longest_s, iterations = max(longest_s, epoch.epoch_s), max(1, epoch.iterations)
    if len(work_s) < 2:
        return None
    late = max(record.ranks, key=lambda rank: (work_s[rank.rank], -rank.rank))
    least_s = min(work_s.values())
    late_s = work_s[late.rank] - least_s
    others = [of_rank for number, of_rank in phases.items() if number != late.rank]

    def excess_s(phase: Work) -> float:
        seconds = SECONDS[phase]
        return seconds(phases[late.rank]) - median(map(seconds, others))

    return Lateness(
        rank=late,
        phase=max(Work, key=excess_s),
        late_s=late_s,
        per_iteration_s=late_s / iterations,
        share=late_s / longest_s,
        late_ranks=sum(seconds - least_s > late_s / 2 for seconds in work_s.values()),
    )
