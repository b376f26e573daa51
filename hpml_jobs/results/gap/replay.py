"""The instrumented epoch of a run as a timeline of its ranks, replayed without sets of causes.

A rank waits for its batch, computes, and waits for the results of collectives. A collective begins
when its last rank has issued it and the one before has ended, and takes its service.
docs/formulas.md#gap-to-the-ideal-speedup has the rules and their limits.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

import numpy as np

from hpml_jobs.core.collective_times import (
    Array,
    Begins,
    Collectives,
    Seconds,
    begins_of,
    paired,
    service_s,
)
from hpml_jobs.core.measurements import Epoch, IterationPhases, Role
from hpml_jobs.core.rank import Rank
from hpml_jobs.core.record import Record
from hpml_jobs.core.text import Share
from hpml_jobs.results.cells import CellResult
from hpml_jobs.results.disturbance import outside_causes
from hpml_jobs.results.figures import queued_s
from hpml_jobs.results.gap.causes import SETS, Causes, GapCause, NoReplayError
from hpml_jobs.results.iterations import NoArraysError, read_arrays

STALL, H2D, FORWARD, BACKWARD, EXPOSED, OPTIMIZER, IN_FORWARD, IN_OPTIMIZER = map(
    IterationPhases._fields.index,
    (
        "stall_s",
        "h2d_s",
        "forward_s",
        "backward_s",
        "comm_exposed_s",
        "optimizer_s",
        "comm_forward_s",
        "comm_optimizer_s",
    ),
)
"""Columns of `parts_s`."""

WAITED = 0.02
"""A batch was waited for if its stall is above this share of a mean iteration."""

AHEAD = 2
"""Batches that each worker of torch's loader has in hand at most (its prefetch_factor)."""

ROUNDING = 1e-6
"""Shares of an iteration that differ by less are the same moment."""


PROOF = Share(0.03)
"""The replay with all causes deviates by at most this share from the instrumented epoch."""

LATE = 0.02
"""Ranks whose computation differs by at most this share of the epoch wait for each other."""

PARTS = len(IterationPhases._fields)
"""Values of an iteration in `parts_s`."""

OF_COLLECTIVES = (
    "start_s",
    "s",
    "served_s",
    "exposed_s",
    "iteration",
    "bytes",
    "kind",
    "purpose",
)
"""Values of each collective in iterations.npz."""


UNALIGNED = "the collectives of the ranks cannot be put on one timeline"


class RecordedRanks(NamedTuple):
    """The instrumented epoch of a run in seconds; arrays are (ranks, iterations) unless said.

    `compute_s` is computation after the batch. `ready_s` is when a batch was ready, since the
    epoch's begin, where a loader's workers went on by themselves; infinite where the rank itself
    waits `stall_s` before each batch. Of each collective (ranks, collectives) `issued` and `needed`
    are the shares of the iteration's computation that were done when it was called, and when the
    rank waited for its result. `iteration` and `service_s` are (collectives). `last_stall_s` is the
    time after the last iteration.
    """

    stall_s: Seconds
    ready_s: Seconds
    compute_s: Seconds
    issued: Seconds
    needed: Seconds
    iteration: Array
    service_s: Seconds
    last_stall_s: float


def recording(
    arrays: Mapping[str, Array], workers: Sequence[int], begins: Begins | None
) -> RecordedRanks:
    """Return the recording of a run.

    `arrays` are those of iterations.npz; `workers` are the loader's workers of each rank,
    `begins` is when each began the epoch, if that is known.

    Raises:
        NoReplayError: its collectives cannot be put on one timeline.
    """
    parts_s = arrays["parts_s"]
    computed_s = parts_s[:, :, [H2D, FORWARD, BACKWARD, OPTIMIZER]].sum(axis=2)
    inside_s = parts_s[:, :, IN_FORWARD] + parts_s[:, :, IN_OPTIMIZER]
    after_backward_s = parts_s[:, :, OPTIMIZER] - parts_s[:, :, IN_OPTIMIZER]
    compute_s = np.maximum(computed_s - inside_s, 1e-9)
    none = np.zeros((len(parts_s), 0))
    issued = none
    needed = none
    iteration = np.zeros(0, int)
    service = np.zeros(0)
    if len(parts_s) > 1 and "collective_served_s" in arrays:
        collectives = paired(arrays)
        if collectives is None:
            raise NoReplayError(UNALIGNED)
        numbers = collectives.iteration
        iteration = numbers[0]
        is_known = (numbers >= 0) & (numbers < parts_s.shape[1])
        if not (is_known & (numbers == iteration)).all():
            raise NoReplayError(UNALIGNED)
        known_s = service_s(collectives, parts_s, begins)
        if known_s is None:
            raise NoReplayError(UNALIGNED)
        service = known_s
        until_optimizer_s = compute_s - after_backward_s
        times_s = compute_s[:, iteration], until_optimizer_s[:, iteration]
        issued, needed = _shares(collectives, *times_s)
    return RecordedRanks(
        stall_s=parts_s[:, :, STALL],
        ready_s=_ready_s(parts_s, workers),
        compute_s=compute_s,
        issued=issued,
        needed=needed,
        iteration=iteration,
        service_s=service,
        # Ranks wait for the last one at the end of the epoch; the least of them waits for nobody.
        last_stall_s=float(arrays["parts_last_stall_s"].min()),
    )


def _ready_s(parts_s: Seconds, workers: Sequence[int]) -> Seconds:
    """Return when each batch was ready, (ranks, iterations); infinite where that is not known.

    A batch that was waited for was ready when it came. Workers that never have as many batches in
    hand as they may never wait for the rank, so they would have been as late for a faster one:
    batches between two that were waited for are taken to have come evenly.
    """
    of_iterations_s = parts_s[:, :, : OPTIMIZER + 1].sum(axis=2)
    stall_s = parts_s[:, :, STALL]
    came_s = np.cumsum(of_iterations_s, axis=1) - of_iterations_s + stall_s
    numbers = np.arange(stall_s.shape[1])
    ready_s = np.full(stall_s.shape, np.inf)
    for rank, number_of_workers in enumerate(workers):
        waited = np.flatnonzero(stall_s[rank] > WAITED * of_iterations_s[rank].mean())
        unwaited = np.diff(waited, prepend=-1, append=len(numbers)).max() - 1
        if len(waited) and unwaited < AHEAD * number_of_workers:
            evenly_s = np.interp(numbers, waited, came_s[rank, waited])
            ready_s[rank] = np.minimum(evenly_s, came_s[rank])
    return ready_s


def _shares(
    collectives: Collectives, compute_s: Seconds, until_optimizer_s: Seconds
) -> tuple[Seconds, Seconds]:
    """Return the shares of computation at which collectives were called, and were needed.

    Arrays are (ranks, collectives), seconds of their iterations. A rank computes whenever it does
    not wait, and it waits for a collective until its end, `exposed_s` long. One that was never
    waited for is needed at the end of backward, or of the optimizer if it was called there.
    """
    start_s = collectives.start_s
    exposed_s = collectives.exposed_s
    end_s = start_s + collectives.duration_s
    issued = np.zeros_like(start_s)
    needed = np.zeros_like(start_s)
    for columns in _columns(collectives.iteration[0]):
        ends = end_s[:, np.newaxis, columns]
        waits = exposed_s[:, np.newaxis, columns]
        for share, moments in ((issued, start_s), (needed, end_s)):
            at = moments[:, columns, np.newaxis]
            waited_s = np.clip(at - (ends - waits), 0.0, waits).sum(axis=2)
            share[:, columns] = moments[:, columns] - waited_s
    in_backward = issued < until_optimizer_s * (1 - ROUNDING)
    latest_s = np.where(in_backward, until_optimizer_s, compute_s)
    needed = np.where(exposed_s > 0, needed, latest_s)
    return np.clip(issued / compute_s, 0.0, 1.0), np.clip(needed / compute_s, 0.0, 1.0)


def _columns(iteration: Array) -> list[slice]:
    """Return the columns of each iteration's collectives, one after the other."""
    if not len(iteration):
        return []
    borders = [0, *(np.flatnonzero(np.diff(iteration)) + 1).tolist(), len(iteration)]
    return [slice(first, last) for first, last in pairwise(borders)]


class Case(NamedTuple):
    """An epoch without some causes: the computation of each rank in seconds, (ranks).

    `is_alone`: it has no collectives, so that no rank waits for another.
    """

    without: Collection[GapCause]
    compute_s: Seconds
    is_alone: bool


def replay(epoch: RecordedRanks, cases: Sequence[Case]) -> Seconds:
    """Return the seconds of the epoch in each case, (cases).

    Inside, arrays are (cases, ranks), and of collectives (cases, ranks, collectives).
    """
    ranks, iterations = epoch.stall_s.shape
    programs = np.array([_programs(case, ranks) for case in cases])
    wanted_s = np.array([case.compute_s for case in cases])
    scale = np.take_along_axis(wanted_s / epoch.compute_s.sum(axis=1), programs, axis=1)
    never_stalls = np.array([[GapCause.LOADER in case.without] for case in cases])
    has_exchange = [GapCause.EXCHANGE not in case.without for case in cases]
    takes_time = np.array(has_exchange, float)
    is_alone = np.array([case.is_alone for case in cases])
    columns_of = {
        int(epoch.iteration[columns.start]): columns
        for columns in _columns(epoch.iteration)
    }
    now_s = np.zeros((len(cases), ranks))
    free_s = np.full(len(cases), -np.inf)
    for number in range(iterations):
        begin_s = np.where(never_stalls, now_s, _begin_s(epoch, number, now_s))
        compute_s = epoch.compute_s[:, number][programs] * scale
        now_s = begin_s + compute_s
        if columns := columns_of.get(number):
            calls = _Calls(
                issued=epoch.issued[:, columns],
                needed=epoch.needed[:, columns],
                service_s=np.outer(takes_time, epoch.service_s[columns]),
                programs=programs,
            )
            waits_s, free_s = _waits_s(calls, begin_s, compute_s, free_s)
            now_s += np.where(is_alone[:, np.newaxis], 0.0, waits_s)
    last_s = np.where(never_stalls[:, 0], 0.0, epoch.last_stall_s)
    longest_s: Seconds = now_s.max(axis=1) + last_s
    return longest_s


def _programs(case: Case, ranks: int) -> list[int]:
    """Return the rank whose computation each rank has: its own, or that of the fastest rank."""
    if GapCause.WAITING not in case.without:
        return [*range(ranks)]
    return [int(case.compute_s.argmin())] * ranks


def _begin_s(epoch: RecordedRanks, number: int, now_s: Seconds) -> Seconds:
    """Return when each rank has the batch of an iteration for which it asks now."""
    ready_s = epoch.ready_s[:, number]
    is_known = np.isfinite(ready_s)
    stalled_s = now_s + epoch.stall_s[:, number]
    return np.where(is_known, np.maximum(now_s, ready_s), stalled_s)


class _Calls(NamedTuple):
    """The collectives of an iteration: shares (ranks, collectives), service (cases, collectives).

    `programs` is the rank whose shares count, (cases, ranks).
    """

    issued: Seconds
    needed: Seconds
    service_s: Seconds
    programs: Array

    def due(self) -> list[Array]:
        """Return for each collective the earlier ones that a rank needs before it calls it."""
        is_due = (
            self.needed[:, :, np.newaxis] <= self.issued[:, np.newaxis, :] + ROUNDING
        )
        is_due &= np.tri(is_due.shape[1], k=-1, dtype=bool).T  # only the earlier ones
        is_new = is_due.copy()
        is_new[:, :, 1:] &= ~is_due[:, :, :-1]
        of_any_rank = np.any(is_new, axis=0)
        return [
            np.flatnonzero(of_any_rank[:, call]) for call in range(of_any_rank.shape[1])
        ]


def _waits_s(
    calls: _Calls, begin_s: Seconds, compute_s: Seconds, free_s: Seconds
) -> tuple[Seconds, Seconds]:
    """Return how long each rank waits for collectives, and when the last of them ends.

    Waits are (cases, ranks). A rank that needs a result at a share of its computation goes on at
    its end, if that is later: the wait of an iteration is the longest of these delays.
    """
    issued = calls.issued[calls.programs]
    needed = calls.needed[calls.programs]
    waits_s = np.zeros_like(begin_s)
    without_waits_s = begin_s[:, :, np.newaxis] + needed * compute_s[:, :, np.newaxis]
    ends_s = np.empty_like(calls.service_s)
    for call, earlier in enumerate(calls.due()):
        for result in earlier:
            delay_s = ends_s[:, result, np.newaxis] - without_waits_s[:, :, result]
            is_needed = needed[:, :, result] <= issued[:, :, call] + ROUNDING
            waits_s = np.where(is_needed, np.maximum(waits_s, delay_s), waits_s)
        issued_s = begin_s + issued[:, :, call] * compute_s + waits_s
        free_s = np.maximum(issued_s.max(axis=1), free_s) + calls.service_s[:, call]
        ends_s[:, call] = free_s
    delays_s = ends_s[:, np.newaxis, :] - without_waits_s
    return np.maximum(waits_s, delays_s.max(axis=2)), free_s


class ReplayableRun(NamedTuple):
    """A run whose instrumented epoch can be replayed.

    `alone` are the ranks' epochs without exchange; none where these were disturbed.
    """

    record: Record
    recording: RecordedRanks
    alone: list[Epoch]

    @property
    def compute_s(self) -> Seconds:
        """The computation of each rank in the instrumented epoch."""
        total_s: Seconds = self.recording.compute_s.sum(axis=1)
        return total_s

    @property
    def late(self) -> list[Rank]:
        """The ranks that compute longer than the fastest one by half of the largest difference.

        None where all compute as long.
        """
        later_s = self.compute_s - self.compute_s.min()
        if later_s.max() <= LATE * _longest_s(self.record, Role.INSTRUMENTED):
            return []
        numbers = np.flatnonzero(later_s > later_s.max() / 2)
        return [self.record.ranks[number] for number in numbers]


class ComputeShare(NamedTuple):
    """What ideally each rank would compute, in seconds, and how long its threads wait for CPUs."""

    compute_s: float
    queued_s: float


def read_run(result: CellResult) -> ReplayableRun:
    """Return a run's recording.

    Raises:
        NoReplayError: it has none, or its ranks cannot be put on one timeline.
    """
    record = result.record
    if record is None or not _epochs(record, Role.INSTRUMENTED):
        raise NoReplayError("there is no instrumented epoch")
    workers = [rank.loader_workers for rank in record.ranks]
    begins = begins_of(record.ranks, meet=record.cell.origin.ranks_meet)
    recorded = recording(_arrays(result, record), workers, begins)
    is_disturbed = outside_causes(record, Role.UNSYNCED)
    alone = [] if is_disturbed else _epochs(record, Role.UNSYNCED)
    return ReplayableRun(record, recorded, alone)


def _arrays(result: CellResult, record: Record) -> dict[str, Array]:
    if result.iterations is None:
        raise NoReplayError("there is no iterations.npz")
    ranks = len(record.ranks)
    iterations = record.instrumented_iterations or 0
    shapes = {
        "parts_s": (ranks, iterations, PARTS),
        "parts_last_stall_s": (ranks,),
    }
    communication = record.ranks[0].communication
    collectives = sum(m.count for m in communication.messages) if communication else 0
    if collectives:
        names = (f"collective_{name}" for name in OF_COLLECTIVES)
        shapes |= dict.fromkeys(names, (ranks, collectives))
    try:
        return read_arrays(result.iterations, shapes)
    except NoArraysError as fault:
        raise NoReplayError(str(fault)) from fault


def _epochs(record: Record, role: Role) -> list[Epoch]:
    """Return the epochs of a role on all ranks; none where a rank has none."""
    epochs = [rank.epoch(role) for rank in record.ranks]
    return [epoch for epoch in epochs if epoch] if all(epochs) else []


def _longest_s(record: Record, role: Role) -> float:
    return max(epoch.epoch_s for epoch in _epochs(record, role))


def ideal_share(references: Sequence[ReplayableRun], ideal: float) -> ComputeShare:
    """Return the share of each rank where `ideal` times as many as in these runs do the work."""
    computed_s = median(float(run.compute_s.mean()) for run in references)
    queues_s = [_queued_s(run, Role.INSTRUMENTED) for run in references]
    queued_s = median(float(of_ranks_s.mean()) for of_ranks_s in queues_s)
    return ComputeShare(
        computed_s / ideal,
        queued_s / ideal,
    )


def _queued_s(run: ReplayableRun, role: Role) -> Seconds:
    """Return how long a thread of each rank waited for a CPU in an epoch; 0 if not known."""
    return np.array([queued_s(rank, role) or 0.0 for rank in run.record.ranks])


def without_causes(
    run: ReplayableRun, share: ComputeShare | None = None
) -> dict[Causes, float]:
    """Return the epoch of a run without each set of causes, as a share of the measured epoch.

    A rank waits for CPUs only as long as it does beyond its ideal `share`, and as its computation
    takes longer than that. Without a share it does not.

    Raises:
        NoReplayError: the replay with all causes does not reproduce the epoch.
    """
    seconds = replay(run.recording, [_case(run, causes, share) for causes in SETS])
    of_sets = dict(zip(SETS, seconds.tolist(), strict=True))
    all_s = of_sets[frozenset()]
    epoch_s = _longest_s(run.record, Role.INSTRUMENTED)
    if abs(all_s / epoch_s - 1) > PROOF:
        raise NoReplayError(
            f"the replay takes {all_s:.3g} s, the instrumented epoch {epoch_s:.3g} s "
            f"(limit {PROOF})"
        )
    shares = {causes: replayed_s / all_s for causes, replayed_s in of_sets.items()}
    if not run.alone:
        return shares
    # The measured epoch counts, and the replay only for what is removed beside the exchange.
    measured = _longest_s(run.record, Role.UNSYNCED) / run.record.timed_s
    scale = measured / shares[frozenset({GapCause.EXCHANGE})]
    return {
        causes: scale * of_epoch if GapCause.EXCHANGE in causes else of_epoch
        for causes, of_epoch in shares.items()
    }


def _case(run: ReplayableRun, causes: Causes, share: ComputeShare | None) -> Case:
    """Return the computation of the ranks without some causes.

    Exchange also takes CPUs and memory from computation: the epoch without exchange has the
    computation without that, and the waiting for CPUs that is left.
    """
    is_alone = GapCause.EXCHANGE in causes and bool(run.alone)
    compute_s = run.compute_s
    if is_alone:
        compute_s = np.array([epoch.epoch_s - epoch.stall_s for epoch in run.alone])
    if GapCause.CPUS in causes and share is not None:
        queued_s = _queued_s(run, Role.UNSYNCED if run.alone else Role.INSTRUMENTED)
        beyond_s = np.minimum(queued_s - share.queued_s, compute_s - share.compute_s)
        compute_s = compute_s - np.maximum(0.0, beyond_s)
    return Case(causes, compute_s, is_alone)


class Replays(NamedTuple):
    """The runs of a row and of its reference without each set of causes, by slug.

    `late` are the ranks that others wait for, by run.
    """

    of_row: Mapping[str, Mapping[Causes, float]]
    of_reference: Mapping[str, Mapping[Causes, float]]
    late: list[list[Rank]]


def replays(
    results: Sequence[CellResult], references: Sequence[CellResult], ideal: float
) -> Replays:
    """Replay the runs of a row and of its reference.

    Raises:
        NoReplayError: one of them cannot be replayed.
    """
    runs = [read_run(result) for result in results]
    reference_runs = [read_run(result) for result in references]
    if not runs or not reference_runs:
        raise NoReplayError("no run has undisturbed epochs with and without exchange")
    share = ideal_share(reference_runs, ideal)
    return Replays(
        {run.record.slug: without_causes(run, share) for run in runs},
        {run.record.slug: without_causes(run) for run in reference_runs},
        [run.late for run in runs],
    )
