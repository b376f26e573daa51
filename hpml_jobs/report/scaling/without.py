"""The epoch of a run without each set of causes, as a share of the measured one."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from hpml_jobs.core.collective_times import Array, Seconds, begins_of
from hpml_jobs.core.disturbance import outside_causes
from hpml_jobs.core.measurements import Epoch, Role
from hpml_jobs.core.rank import Rank
from hpml_jobs.core.record import Record
from hpml_jobs.report.frame.arrays import NoArraysError, read_arrays
from hpml_jobs.report.scaling.causes import SETS, Causes, GapCause, NoReplayError
from hpml_jobs.report.scaling.replay import Case, RecordedRanks, recording, replay
from hpml_jobs.results.cells import CellResult

PROOF = 0.03
"""The replay with all causes deviates by at most this share from the instrumented epoch."""

LATE = 0.02
"""Ranks whose computation differs by at most this share of the epoch wait for each other."""

PARTS = 14
"""Values of an iteration in `parts_s`."""

OF_COLLECTIVES = (
    *("start_s", "s", "served_s", "exposed_s"),
    *("iteration", "bytes", "kind", "purpose"),
)
"""Values of each collective in iterations.npz."""


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
    if recorded is None:
        why = "the collectives of the ranks cannot be put on one timeline"
        raise NoReplayError(why)
    is_disturbed = outside_causes(record, Role.UNSYNCED)
    alone = [] if is_disturbed else _epochs(record, Role.UNSYNCED)
    return ReplayableRun(record, recorded, alone)


def _arrays(result: CellResult, record: Record) -> dict[str, Array]:
    if result.iterations is None:
        raise NoReplayError("there is no iterations.npz")
    ranks = len(record.ranks)
    iterations = record.instrumented_iterations or 0
    shapes = {"parts_s": (ranks, iterations, PARTS), "parts_last_stall_s": (ranks,)}
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
    queued_s = []
    for rank in run.record.ranks:
        epoch = rank.epoch(role)
        account = epoch.scheduling if epoch else None
        of_rank_s = account.run_queue_s if account else None
        queued_s.append((of_rank_s or 0.0) / rank.threads)
    return np.array(queued_s)


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
            f"(limit {100 * PROOF:.0f} %)"
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

    `late` are the ranks that others wait for, by run. `is_measured`: without exchange they are
    measured epochs.
    """

    of_row: Mapping[str, Mapping[Causes, float]]
    of_reference: Mapping[str, Mapping[Causes, float]]
    late: list[list[Rank]]
    is_measured: bool


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
        all(run.alone for run in runs),
    )
