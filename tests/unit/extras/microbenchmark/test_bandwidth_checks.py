"""Checks of training against the microbenchmark: what fires them, and what they need."""

import pytest
from msgspec.structs import replace

from hpml_jobs.checks.study import check_record
from hpml_jobs.core.check_result import Level, Tier
from hpml_jobs.core.measurements import Microbenchmark
from hpml_jobs.core.strategies import Device, Strategy
from tests.unit.builders import a_cell, a_record
from tests.unit.check_cases import (
    CheckCase,
    assert_fires,
    case_id,
    change_communication,
    change_messages,
    change_microbenchmark,
    clean_record,
    result_of,
)

FAIL, WARN = Level.FAIL, Level.WARN
ON_CPU = a_cell(batch=32, device=Device.CPU)
NAMES = {"bus-bandwidth", "slow-microbenchmark"}


def large_messages(old):
    """Rank 1 sends 4 MiB at once in the time of 100 kB."""
    changed = change_messages(bytes=2**22, elements=2**20)(old)
    return change_communication(
        gradients_s=0.99 * old.ranks[1].communication.gradients_s
    )(changed)


CASES = [
    CheckCase(
        "bus-bandwidth",
        WARN,
        change_communication(gradients_s=0.3),
        "the microbenchmark reached",
    ),
    CheckCase(
        "bus-bandwidth",
        FAIL,
        change_communication(gradients_s=0.3),
        "the microbenchmark reached",
        ON_CPU,
    ),
    CheckCase(
        "bus-bandwidth",
        FAIL,
        large_messages,
        "at these sizes (limit 1.1 x)",
    ),
    CheckCase(
        "slow-microbenchmark",
        WARN,
        lambda old: replace(
            old,
            microbenchmark=replace(
                old.microbenchmark,
                points=tuple(
                    replace(point, lower_quartile_s=None, median_s=100 * point.median_s)
                    for point in old.microbenchmark.points
                ),
            ),
        ),
        " x the time of the same messages in training (limit 1.1 x)",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_check_fires_on_its_case(case):
    assert_fires(case)


EMPTY = Microbenchmark(points=(), largest_asked_bytes=0, seconds=0.0)

ABSENT = {
    "no communication": lambda old: replace(
        old, ranks=tuple(replace(rank, communication=None) for rank in old.ranks)
    ),
    "no microbenchmark": lambda old: replace(old, microbenchmark=None),
    "empty microbenchmark": lambda old: replace(old, microbenchmark=EMPTY),
    "no time of gradients": change_communication(gradients_s=0.0),
}


@pytest.mark.parametrize("case", ABSENT)
def test_check_without_its_data_gives_no_result(case):
    complete = {result.check for result in check_record(clean_record())}
    assert complete >= NAMES
    assert not NAMES & {
        result.check for result in check_record(ABSENT[case](clean_record()))
    }


def test_one_gpu_has_no_bus_bandwidth():
    record = a_record(a_cell(strategy=Strategy.SINGLE, gpus=1))
    assert not NAMES & {result.check for result in check_record(record)}


def test_disturbed_microbenchmark_cannot_prove_a_fault():
    """Large messages that were faster than its trials are then no fault of the program."""
    disturb = change_microbenchmark(busy_s=8.0 * (0.9 * 4 + 1.0))
    result = result_of(
        check_record(disturb(large_messages(clean_record()))), "bus-bandwidth"
    )
    assert (result.level, result.tier) == (Level.WARN, Tier.LIST)
    assert "; the microbenchmark was disturbed: run it again" in result.reason
    assert "fault of hpml_jobs" not in result.reason


def test_bus_bandwidth_of_overlapping_messages_uses_best_size():
    """Two small messages at once may take less than two alone; more than the wire they cannot."""
    fast = change_communication(gradients_s=0.3)(clean_record())
    sent = fast.ranks[1].communication.messages[0].busy_s
    assert sent > 2 * 0.3
    peak = result_of(check_record(fast), "bus-bandwidth")
    assert "at any size" in peak.reason
    assert (
        result_of(check_record(clean_record()), "bus-bandwidth").reason.count(
            "at these sizes"
        )
        == 1
    )
