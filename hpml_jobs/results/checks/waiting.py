"""What the ranks of a cell wait for: their data, or a late rank."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from statistics import median, stdev
from typing import NamedTuple

from hpml_jobs.core.check_result import Affected, Level, Tier
from hpml_jobs.core.formulas import loader_waiting_s
from hpml_jobs.core.measurements import Phases, Role
from hpml_jobs.core.rank import Rank
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Loader
from hpml_jobs.core.text import Share, percent_text
from hpml_jobs.core.value import cached_on_value
from hpml_jobs.results.checks.hardware import OVERSUBSCRIBED
from hpml_jobs.results.checks.result import Observation, check, limit_text
from hpml_jobs.results.disturbance import explains, outside_causes
from hpml_jobs.results.statistics import epoch_error, is_above


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


IMBALANCE_LIMIT = Share(0.05)
STALL_LIMIT = Share(0.05)
LARGER_BATCH = "use a larger batch=: the device waits for the host, no batch is loaded"
NO_WORKERS = "set loader_workers=, so that batches are loaded while the device computes"

_COMPUTING = (
    "check the {device} of {host} for other programs and low clocks, and give every rank the same "
    "work"
)
REMEDIES = dict.fromkeys(WorkPhase, _COMPUTING) | {
    WorkPhase.LOADING: (
        "check the storage and CPUs of {host} and the data of that rank, or increase "
        "loader_workers="
    ),
    WorkPhase.COPIES: "check what else uses the memory and the bus of {host}",
    WorkPhase.PACKING: "use strategy=ddp or allreduce, where all ranks average",
}
"""Remedies for a late rank, by the phase in which it is late."""


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


@cached_on_value
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


def lateness_error(record: Record, lateness: Lateness) -> float:
    """Return the error of the share of the epoch by which a rank is late; 0 where it is not known.

    It is the wider of two: the scatter over blocks of the difference between the late rank's work
    and another's (not known before version 0.10.0), and that of the instrumented epoch.
    """
    work_s = {
        rank.rank: rank.phases and rank.phases.work_blocks_s for rank in record.ranks
    }
    epochs = [rank.epoch(Role.INSTRUMENTED) for rank in record.ranks]
    step_s = max(epoch.epoch_s / epoch.iterations for epoch in epochs if epoch)
    differences_s = [
        stdev(late - other for late, other in zip(of_late, of_other, strict=True))
        for number, of_other in work_s.items()
        for late in lateness.late
        if number != late.rank.rank and of_other and (of_late := work_s[late.rank.rank])
    ]
    of_epoch = epoch_error(record, Role.INSTRUMENTED) or 0.0
    return max(of_epoch, max(differences_s, default=0.0) / step_s)


def _is_late(lateness: Lateness, error: float) -> bool:
    return is_above(lateness.share, error, IMBALANCE_LIMIT)


@check(
    "imbalance", Level.WARN, Tier.NUMBER, Affected.SPLIT, explained_by={OVERSUBSCRIBED}
)
def imbalance(record: Record) -> Observation | None:
    """One rank computes or loads longer than the others, which wait for it in a collective: the
    epoch is as long as that rank makes it, and Table 2 shows the late rank. Ranks that are late in
    different phases wait for each other, and each is named with its phase. Only in the list where
    an outside cause of the same size explains it: `disturbed` is shown.

    Limit: {IMBALANCE_LIMIT} of the instrumented epoch {LOWER_END}
    Fix: give every rank the same work
    """
    lateness = lateness_of(record, IMBALANCE_LIMIT)
    if lateness is None:
        return None
    error = lateness_error(record, lateness)
    share = f"{percent_text(lateness.share)} of the epoch"
    limit = limit_text(IMBALANCE_LIMIT, error)
    about = " ".join(_name(late.rank) for late in lateness.late)
    if not _is_late(lateness, error):
        text = f"ranks compute and load equally long within {share} ({limit})"
        return Observation(True, text, share=lateness.share, about=about)
    causes = outside_causes(record, Role.INSTRUMENTED)
    text = f"{_late_text(lateness)} ({share}, {limit})"
    text += "".join(f"; {cause.text}" for cause in causes)
    by_outside = explains(record, lateness.share, Role.INSTRUMENTED)
    tier = Tier.LIST if by_outside else None  # the line of disturbed is enough
    remedies = dict.fromkeys(_remedy(record, late) for late in lateness.late)
    remedy = "repeat the cell on a quiet machine" if causes else "; ".join(remedies)
    return Observation(
        False, text, remedy, tier=tier, share=lateness.share, about=about
    )


def _late_text(lateness: Lateness) -> str:
    texts = []
    for late in lateness.late:
        time_ms = 1e3 * late.late_s / lateness.iterations
        texts.append(
            f"{_name(late.rank)} is late by {time_ms:.3g} ms per iteration, in {late.phase}"
        )
    more = lateness.late_ranks - len(lateness.late)
    others = f", and {more} more" if more > 0 else ""
    return f"{'; '.join(texts)}{others}; other ranks wait"


def _name(rank: Rank) -> str:
    return f"rank {rank.rank} on {rank.host}"


def _remedy(record: Record, late: Late) -> str:
    device = "CPUs" if record.cell.device == "cpu" else "GPU"
    return REMEDIES[late.phase].format(host=late.rank.host, device=device)


@check(
    "loader-bound", Level.WARN, Tier.TABLE, Affected.TIME, explained_by={OVERSUBSCRIBED}
)
def loader_bound(record: Record) -> Observation | None:
    """The device waits for data during a large part of the epoch: the epoch measures the data
    loader. Waiting for the first batch and passing batches that are ready are not counted, where
    the record has them apart; without loader workers, what the first batch takes longer than the
    others.

    Limit: waiting is {STALL_LIMIT} of the epoch on every rank {LOWER_END}
    Fix: increase loader_workers=, or use loader=device or faster storage
    """
    if not record.ranks:
        return _stall(record)
    rank = max(record.ranks, key=lambda rank: (_waiting_s(rank), -rank.rank))
    share = _waiting_s(rank) / record.timed_s
    error = _waiting_error(rank)
    where = f" on {_name(rank)}" if len(record.ranks) > 1 else ""
    what = "waiting for data" if rank.timed.stalls else "stall"
    limit = limit_text(STALL_LIMIT, error)
    text = f"{what} is {percent_text(share)} of the epoch{where} ({limit})"
    remedy = _loading_remedy(record, rank)
    if not is_above(share, error, STALL_LIMIT):
        return Observation(True, text, remedy, share=share)
    if remedy == NO_WORKERS:
        text += ", no loader workers: loading delays computing"
    explained = not remedy and _is_said_elsewhere(record, rank, share)
    tier = Tier.LIST if explained else None
    return Observation(False, text, remedy, tier=tier, share=share)


def _stall(record: Record) -> Observation | None:
    """Judge the stall of an imported record, as the source reports it."""
    if record.train_s is None:
        return None
    share = 1 - record.train_s / record.epoch_s
    text = f"stall is {percent_text(share)} of the epoch (limit {STALL_LIMIT})"
    return Observation(share <= STALL_LIMIT, text, share=share)


def _loading_remedy(record: Record, rank: Rank) -> str:
    """Return the remedy where that of the check does not help."""
    if record.cell.loader is Loader.DEVICE:
        return LARGER_BATCH
    if remedy := record.cell.origin.loading_remedy:
        return remedy
    return NO_WORKERS if rank.loader_workers == 0 else ""


def _is_said_elsewhere(record: Record, rank: Rank, share: float) -> bool:
    """Return whether the line of `imbalance` or `disturbed` explains the waiting."""
    lateness = lateness_of(record, IMBALANCE_LIMIT)
    if lateness and _is_late(lateness, lateness_error(record, lateness)):
        late_places = {(late.rank.rank, late.phase) for late in lateness.late}
        if (rank.rank, WorkPhase.LOADING) in late_places:
            return True
    return explains(record, share)


def _waiting_error(rank: Rank) -> float:
    """Return the error of the share of waiting: the scatter over blocks; 0 where not known."""
    stalls = rank.timed.stalls
    if stalls is None or stalls.block_means_s is None:
        return 0.0
    return stdev(stalls.block_means_s) * rank.timed.batches / rank.timed.epoch_s


def _waiting_s(rank: Rank) -> float:
    """Return the waiting for data; all of the stall where it is not split.

    Without loader workers every batch takes its time, so only the excess of the first is not in it.
    """
    timed, stalls = rank.timed, rank.timed.stalls
    if stalls is None:
        return timed.stall_s
    if rank.loader_workers == 0:
        later_s = (timed.stall_s - stalls.first_s) / max(1, timed.batches - 1)
        return timed.stall_s - max(0.0, stalls.first_s - later_s)
    return loader_waiting_s(
        timed.stall_s - stalls.last_s, stalls.first_s, stalls.p20_s, timed.batches
    )
