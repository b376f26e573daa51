"""Known truths, injected as sleeps: each is found in its phase, and Table 2 is of the late rank."""

import pytest

from hpml_jobs.results.checks.waiting import (
    IMBALANCE_LIMIT,
    SECONDS,
    WorkPhase,
    lateness_of,
)
from tests.unit.worker.injections import (
    CROSSED,
    EVERYWHERE,
    LATE_BUCKET,
    LATE_RANK,
    SLOW_LOADER,
    THREE_LATE,
    InjectedStudy,
)

pytestmark = pytest.mark.long  # they decide by measured times

FOUND = 0.97
"""A phase contains its sleeps; the clocks of the sleep and of the phase differ by less."""

ATTRIBUTION = {
    "stall_s": ("item",),
    "forward_s": ("forward", "loss"),
    "backward_s": ("backward",),
    "comm_exposed_s": ("all_reduce",),
    "optimizer_s": ("optimizer",),
}
"""The phases, and the injections that belong to each."""


@pytest.mark.parametrize("strategy", ["ddp", "allreduce_flat"])
def test_injected_sleeps_are_found_in_their_phase(strategy, program):
    """Sleeps in every phase at once: in no phase for another's, so each has its own."""
    study = InjectedStudy(
        program, "everywhere", EVERYWHERE, gpus="2", strategy=strategy
    )
    (record,) = study.records
    for rank in record.ranks:
        slept = study.slept_s(record, rank.rank)
        assert slept["all_reduce"] > 0
        assert rank.epoch("instrumented").closure < 0.01
        for phase, injections in ATTRIBUTION.items():
            truth_s = sum(slept[injection] for injection in injections)
            found_s = getattr(rank.phases, phase) - (
                rank.phases.comm_forward_s if phase == "forward_s" else 0.0
            )
            assert found_s >= FOUND * truth_s, (rank.rank, phase)


@pytest.mark.parametrize(
    ("injected", "where", "phase"),
    [
        pytest.param(LATE_RANK, "forward", "forward", id="late-rank"),
        pytest.param(SLOW_LOADER, "item", "data loading", id="slow-loader"),
        pytest.param(LATE_BUCKET, "backward", "backward", id="late-bucket"),
    ],
)
def test_table_2_is_of_late_rank_not_of_waiting_one(injected, where, phase, program):
    """0.4.0 showed either rank: 13 or 83 % of the epoch as communication."""
    study = InjectedStudy(program, "late", injected, gpus="2")
    (record,) = study.records
    truth_s = study.slept_s(record, 1)[where]
    assert record.least_waiting.rank == 1
    assert record.comm_exposed_s < 0.5 * truth_s < record.ranks[0].phases.exposed_s
    checks = study.checks()[record.slug]
    level, reason = checks["imbalance"]
    assert level == "warn"
    late = max(lateness_of(record, IMBALANCE_LIMIT).late, key=lambda late: late.late_s)
    assert (late.rank.rank, late.phase) == (1, phase)
    assert f"rank 1 on {record.ranks[1].host}" in reason
    if where == "item":
        assert record.phases.stall_s >= FOUND * truth_s
        assert record.stall_s > 0.5 * record.epoch_s
        assert checks["loader-bound"][0] == "warn"
        assert "on rank 1 on" in checks["loader-bound"][1]
    else:
        assert record.compute_s >= FOUND * truth_s
        assert checks["loader-bound"][0] == "pass"


MUTUAL = (
    ("item", WorkPhase.LOADING),
    ("forward", WorkPhase.FORWARD),
    ("backward", WorkPhase.BACKWARD),
)
"""The sleep and the phase of each late rank, in the order of their numbers."""


@pytest.mark.parametrize(
    "injected",
    [
        pytest.param(CROSSED, id="crossed"),
        pytest.param(THREE_LATE, id="three-late"),
    ],
)
def test_ranks_late_in_different_phases_are_named_and_wait_for_each_other(
    injected, program
):
    """Until 0.8.0 their waiting was exchange, either rank was shown, and no check warned."""
    study = InjectedStudy(program, "mutual", injected, gpus=str(len(injected)))
    (record,) = study.records
    limit_s = 0.1 * record.ranks[0].epoch("instrumented").epoch_s
    level, reason = study.checks()[record.slug]["imbalance"]
    assert level == "warn"
    late, _, _ = reason.partition("; other ranks wait (")
    of_ranks = late.split("; ")
    truths_s = []
    for rank, (where, phase) in zip(record.ranks, MUTUAL, strict=False):
        truths_s.append(study.slept_s(record, rank.rank)[where])
        name = f"rank {rank.rank} on {rank.host} is late by "
        (of_rank,) = (text for text in of_ranks if text.startswith(name))
        assert of_rank.endswith(f"in {phase}")
        assert SECONDS[phase](rank.phases) == pytest.approx(truths_s[-1], abs=limit_s)
    assert record.least_waiting.rank == 0  # all wait equally
    assert record.exchange_s < 0.5 * min(truths_s)
    # Ranks that wait for a CPU are late too: more processes than CPUs, and others on the machine.
    queued_s = sum(
        rank.epoch("instrumented").scheduling.run_queue_s for rank in record.ranks
    )
    latest_s = max(truths_s[1:])
    assert latest_s - limit_s < record.waiting_s < latest_s + limit_s + queued_s
