"""What the ranks of a cell wait for: their data, or a late rank."""

from statistics import stdev

from hpml_jobs.core.check_result import Affected, Level, Tier
from hpml_jobs.core.disturbance import explains, outside_causes
from hpml_jobs.core.formulas import loader_waiting_s
from hpml_jobs.core.measurements import Role, Stalls
from hpml_jobs.core.noise import lateness_error
from hpml_jobs.core.outliers import Late, Lateness, WorkPhase, lateness_of
from hpml_jobs.core.rank import Rank
from hpml_jobs.core.record import Record
from hpml_jobs.core.statistics import is_above
from hpml_jobs.core.strategies import Loader
from hpml_jobs.core.text import Share, percent_text
from hpml_jobs.results.checks.hardware import OVERSUBSCRIBED
from hpml_jobs.results.checks.result import Observation, check, limit_text

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


def _lateness_of(record: Record) -> Lateness | None:
    return record.kept("lateness", None, lambda: lateness_of(record, IMBALANCE_LIMIT))


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
    lateness = _lateness_of(record)
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
    lateness = _lateness_of(record)
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
    timed = rank.timed
    if timed.stalls is None:
        return timed.stall_s
    if rank.loader_workers == 0:
        return timed.stall_s - _first_s(rank, timed.stalls)
    return loader_waiting_s(
        timed.stall_s - timed.stalls.last_s,
        timed.stalls.first_s,
        timed.stalls.p20_s,
        timed.stalls.batches or timed.iterations,
    )


def _first_s(rank: Rank, stalls: Stalls) -> float:
    """Return the waiting for the first batch; without loader workers its excess."""
    if rank.loader_workers:
        return stalls.first_s
    others = (stalls.batches or rank.timed.iterations) - 1
    return max(
        0.0, stalls.first_s - (rank.timed.stall_s - stalls.first_s) / max(1, others)
    )
