"""What times of iterations and ranks show: outliers, a drift, ranks that others wait for."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from itertools import combinations
from statistics import fmean, median, quantiles
from typing import NamedTuple

from hpml_jobs.core.measurements import Phases, Role, SlowIterations
from hpml_jobs.core.rank import Rank
from hpml_jobs.core.record import Record

LEAST_ITERATIONS = 5
"""With fewer iterations one slow one shifts the quartiles that it is compared with."""

LEAST_RATIO = 1.5
"""An iteration below so many medians is never outlying: a few of them are no event."""

QUARTILE_POWER = 6
"""Fence on a logarithmic scale: so many times the distance of the upper quartile (4 sigma)."""

QUARTILE_RANGES = 10
"""Fence on a linear scale: so many inter-quartile ranges above the upper quartile."""


def slow_iterations(
    step_s: Sequence[float], stall_s: Sequence[float] | None = None
) -> SlowIterations | None:
    """Return the outlying ones of an epoch's iterations; None with fewer than 5.

    Outlying is what exceeds 1.5 medians and the lower of two fences: median x (q3 / median)^6,
    which follows long tails, and q3 + 10 (q3 - q1), which follows two modes. With `stall_s`, the
    wait for each iteration's batch, the start of the loader is left out of the first iteration.

    >>> slow = slow_iterations([0.04] * 4 + [8.0] + [0.05] * 5)
    >>> slow.count, slow.longest_s, slow.longest_index, round(slow.excess_s, 2)
    (1, 8.0, 4, 7.95)
    >>> slow_iterations([1.0, 1.1, 0.9, 1.2, 1.0, 1.3]).count
    0
    """
    if len(step_s) < LEAST_ITERATIONS:
        return None
    steps = [float(seconds) for seconds in step_s]
    if stall_s is not None:
        steps[0] += median(map(float, stall_s)) - float(stall_s[0])
    typical_s, fence = median(steps), fence_s(steps)
    excesses = [seconds - typical_s for seconds in steps if seconds > fence]
    longest_s = max(steps)
    return SlowIterations(
        count=len(excesses),
        excess_s=float(sum(excesses)),
        longest_s=longest_s,
        longest_index=steps.index(longest_s),
    )


def fence_s(step_s: Sequence[float]) -> float:
    """Return the seconds above which an iteration is outlying. Needs two iterations or more."""
    first, middle, third = quantiles(step_s, n=4, method="inclusive")
    if middle <= 0:
        return max(step_s)
    by_ratio = middle * (third / middle) ** QUARTILE_POWER
    by_range = third + QUARTILE_RANGES * (third - first)
    return max(LEAST_RATIO * middle, min(by_ratio, by_range))


BLOCKS = 10
"""Consecutive blocks of an epoch, of equal numbers of iterations."""

ENDS = 3
"""Blocks at either end whose mean is compared."""


def kendall_s(values: Sequence[float]) -> int:
    """Return Kendall's S: the pairs in rising order less the pairs in falling order.

    Of ten values without a trend, S >= 27 has a probability of 0.8 %, S <= -27 the same; |S| is 45
    at most.

    >>> kendall_s([1.0, 2.0, 3.0]), kendall_s([3.0, 2.0, 1.0]), kendall_s([1.0, 3.0, 1.0])
    (3, -3, 0)
    """
    return sum(
        (later > earlier) - (later < earlier)
        for earlier, later in combinations(values, 2)
    )


def change_of_ends(values: Sequence[float]) -> float:
    """Return by which share the last three values are above the first three, by their means.

    >>> round(change_of_ends([1.0, 1.0, 1.0, 5.0, 1.1, 1.1, 1.1]), 3)
    0.1
    """
    first = fmean(values[:ENDS])
    return fmean(values[-ENDS:]) / first - 1 if first > 0 else 0.0


def over_ranks(blocks: Sequence[Sequence[float]]) -> list[float]:
    """Return the median over ranks of each block: ranks that train together drift together."""
    return [*map(median, zip(*blocks, strict=True))]


class WorkPhase(StrEnum):
    """A phase in which a rank works: everything but exposed communication."""

    LOADING = "data loading"
    COPIES = "copies to the device"
    FORWARD = "forward"
    BACKWARD = "backward"
    PACKING = "packing gradients"
    OPTIMIZER = "optimizer"


SECONDS: Mapping[WorkPhase, Callable[[Phases], float]] = {
    WorkPhase.LOADING: lambda phases: phases.stall_s,
    WorkPhase.COPIES: lambda phases: phases.h2d_s,
    WorkPhase.FORWARD: lambda phases: phases.forward_s - phases.comm_forward_s,
    WorkPhase.BACKWARD: lambda phases: phases.backward_s - phases.pack_s,
    WorkPhase.PACKING: lambda phases: phases.pack_s,
    WorkPhase.OPTIMIZER: lambda phases: phases.optimizer_s - phases.comm_optimizer_s,
}
"""Seconds of each phase in which a rank works.

Packing is the part of backward that copies gradients into and out of messages, and averages them.
"""


class Late(NamedTuple):
    """A rank that others wait for, and the phase in which it works longer by `late_s`."""

    rank: Rank
    phase: WorkPhase
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
    latest = max(record.ranks, key=lambda rank: (work_s[rank.rank], -rank.rank))
    least_s = min(work_s.values())
    late_s = work_s[latest.rank] - least_s
    is_late = {number: work_s[number] - least_s > late_s / 2 for number in work_s}
    # no exchange is known where it is None; 0.0 where all of it is waiting
    waits_little = record.exchange_s is None or (
        phases[latest.rank].exposed_s - record.exchange_s <= limit * whole_s
    )
    in_phases = [_longest_in(phase, record.ranks, phases) for phase in WorkPhase]
    limit_s = max(limit * whole_s, max(longest.late_s for longest in in_phases) / 4)
    several = [longest for longest in in_phases if longest.late_s > limit_s]
    if waits_little:
        is_clear = late_s > limit * whole_s
        several = [late for late in several if is_clear and is_late[late.rank.rank]]
    if {longest.rank.rank for longest in several} <= {latest.rank}:
        several = [Late(latest, _longest_phase(latest, phases), late_s)]
    return Lateness(
        late=tuple(sorted(several, key=lambda late: late.rank.rank)),
        share=max(late.late_s for late in several) / whole_s,
        late_ranks=sum(is_late.values()),
        iterations=max(1, *(epoch.iterations for epoch in epochs if epoch)),
    )


def _longest_phase(rank: Rank, phases: Mapping[int, Phases]) -> WorkPhase:
    """Return the phase with the largest excess over the other ranks."""
    others = [of_rank for number, of_rank in phases.items() if number != rank.rank]
    excess_s = {
        phase: seconds(phases[rank.rank]) - median(map(seconds, others))
        for phase, seconds in SECONDS.items()
    }
    return max(excess_s, key=excess_s.__getitem__)


def _longest_in(
    phase: WorkPhase, ranks: Sequence[Rank], phases: Mapping[int, Phases]
) -> Late:
    """Return the rank with the longest phase, compared with the shortest."""
    in_phase = SECONDS[phase]
    seconds = {number: in_phase(of_rank) for number, of_rank in phases.items()}
    rank = max(ranks, key=lambda rank: (seconds[rank.rank], -rank.rank))
    longer_s = seconds[rank.rank] - min(seconds.values())
    return Late(rank, phase, longer_s)
