"""Checks of what ranks wait for: a late rank, a slow loader."""

import pytest
from msgspec.structs import replace

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.check_result import Level
from hpml_jobs.core.measurements import Stalls
from hpml_jobs.core.strategies import Device
from hpml_jobs.results.checks.study import check_record
from tests.unit.builders import a_cell
from tests.unit.check_cases import (
    PAUSE,
    change_epoch,
    change_rank,
    clean_record,
    late_rank,
)

PAIR = a_cell(gpus=2, batch=32, device=Device.CPU, loader_workers=2)


def checked(record):
    """Results of the checks by name."""
    return {result.check: result for result in check_record(record)}


@pytest.mark.parametrize(
    ("phase", "words", "remedy"),
    [
        ("stall_s", "in data loading", "check the storage and CPUs of gr001"),
        ("forward_s", "in forward", "check the CPUs of gr001 for other programs"),
        ("optimizer_s", "in optimizer", "check the CPUs of gr001 for other programs"),
    ],
)
def test_late_rank_is_named_with_host_and_phase(phase, words, remedy):
    late = late_rank(1, phase, 0.5)(clean_record(PAIR))
    assert late.least_waiting.rank == 1
    result = checked(late)["imbalance"]
    assert result.level is Level.WARN
    assert result.reason.startswith(
        "rank 1 on gr001 is late by 1.56 ms per iteration, " + words
    )
    assert "other ranks wait (6.21 % of the epoch, limit 5 %)" in result.reason
    assert result.remedy.startswith(remedy)


def test_outside_cause_of_late_rank_is_named_with_it():
    late = late_rank(1, "forward_s", 0.5)(clean_record(PAIR))
    stopped = replace(late.ranks[1].timed.scheduling, continued_s=(4.0,))
    result = checked(
        change_epoch("instrumented", 1, scheduling=stopped, slow=PAUSE)(late)
    )["imbalance"]
    assert "limit 5 %); rank 1 on gr001 was stopped" in result.reason
    assert result.remedy == "repeat the cell on a quiet machine"


@pytest.mark.parametrize(
    ("exchange_s", "are_named"), [(0.0, True), (0.02, True), (0.6, False)]
)
def test_ranks_late_in_different_phases_are_both_named(exchange_s, are_named):
    """Their work is equal. If they do not wait, there is no collective between the two phases."""
    record = clean_record(PAIR)
    for number, phase in enumerate(("stall_s", "forward_s")):
        phases = record.ranks[number].phases
        longer = replace(phases, **{phase: getattr(phases, phase) + 0.608})
        record = change_epoch("instrumented", number, phases=longer)(record)
    record = replace(record, exchange=replace(record.exchange, exchange_s=exchange_s))
    result = checked(record)["imbalance"]
    assert result.level is (Level.WARN if are_named else Level.PASS)
    if are_named:
        assert result.reason.startswith(
            "rank 0 on gr001 is late by 1.9 ms per iteration, in data loading; rank 1 on gr001 is "
            "late by 1.9 ms per iteration, in forward; other ranks wait (7.56 % of the epoch, "
        )
        assert (
            "loader_workers=; check the CPUs of gr001 for other programs"
            in result.remedy
        )


@pytest.mark.parametrize("protocol", [Protocol.LAB, Protocol.FULL])
@pytest.mark.parametrize("slow", [0, 1])
def test_slow_loader_on_any_rank_is_loader_bound(slow, protocol):
    cell = a_cell(gpus=2, batch=32, protocol=protocol, loader_workers=2)
    result = checked(change_epoch("timed", slow, stall_s=1.6)(clean_record(cell)))[
        "loader-bound"
    ]
    assert result.level is Level.WARN
    assert (
        f"waiting for data is 18.5 % of the epoch on rank {slow} on gr001"
        in result.reason
    )


def test_loader_start_and_hand_over_are_not_waiting():
    """A short epoch whose stall is a third of it, none of which is waiting for data."""
    stalls = Stalls(first_s=1.9, p20_s=0.001, last_s=0.2)
    record = clean_record(PAIR)
    handed_s = 0.001 * (record.iterations - 1)
    record = change_epoch("timed", stall_s=1.9 + handed_s + 0.2, stalls=stalls)(record)
    results = checked(record)
    assert results["loader-bound"].level is Level.PASS
    assert "waiting for data is 0 % of the epoch" in results["loader-bound"].reason


def test_loader_that_is_always_late_is_loader_bound():
    """With one worker all stalls are equally long: the 20th percentile is waiting too."""
    record = clean_record(PAIR)
    each_s = 0.02
    stalls = Stalls(first_s=each_s, p20_s=each_s, last_s=0.0)
    record = change_epoch("timed", stall_s=each_s * record.iterations, stalls=stalls)(
        record
    )
    assert checked(record)["loader-bound"].level is Level.WARN


def test_without_loader_workers_stall_counts_but_for_a_slow_first_batch():
    record = change_epoch("timed", 1, stall_s=0.96)(clean_record(PAIR))
    for number in range(2):
        record = change_rank(number, loader_workers=0)(record)
    results = checked(record)
    reason = results["loader-bound"].reason
    assert (
        "waiting for data is 11.03 % of the epoch on rank 1 on gr001 (limit 5 %), no"
        in reason
    )
    assert "loading delays computing: set loader_workers=" in reason
    stalls = Stalls(first_s=0.9, p20_s=0.0, last_s=0.0)
    results = checked(change_epoch("timed", 1, stalls=stalls)(record))
    assert results["loader-bound"].level is Level.PASS
