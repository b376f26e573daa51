"""Checks of a cell's GPUs: what fires them, what they need, and what they say of real ones."""

import pytest
from msgspec.structs import replace

from hpml_jobs.core.check_result import Level
from hpml_jobs.core.gpus import Card
from hpml_jobs.core.measurements import Memory
from hpml_jobs.results.checks.study import check_record
from tests.unit.check_cases import (
    CheckCase,
    assert_fires,
    case_id,
    change_card,
    change_epoch,
    change_every_rank,
    clean_record,
    result_of,
    samples_at,
)

WARN = Level.WARN

FULL_MEMORY = Memory(
    allocated_bytes=15_000_000_000, reserved_bytes=15_900_000_000, retries=3, ooms=0
)


CASES = [
    CheckCase(
        "throttled",
        WARN,
        change_card(throttle_reasons=("gpu_idle", "hw_slowdown", "sw_power_cap")),
        "1 of 4 GPUs throttled by hw_slowdown (1410 of 1410 MHz, 60 °C)",
    ),
    CheckCase(
        "throttled",
        WARN,
        change_card(samples=samples_at(1200, "reason_0x1000")),
        "1 of 4 GPUs throttled by reason_0x1000 (1200 of 1410 MHz, 75 °C)",
    ),
    CheckCase(
        "gpu-health",
        WARN,
        change_card(ecc_uncorrected=2),
        "2 uncorrected ECC errors on GPU 0000:1B:00.0: report the node",
    ),
    CheckCase(
        "gpu-health",
        WARN,
        change_card(row_remapping="pending", ecc_uncorrected=None),
        "row remapping is pending on GPU",
    ),
    CheckCase(
        "gpu-health",
        WARN,
        change_card(pcie_width=8),
        "x8 of x16 lanes on GPU 0000:1B:00.0",
    ),
    CheckCase(
        "other-processes",
        WARN,
        change_card(other_processes=2),
        "2 processes of",
    ),
    CheckCase(
        "gpu-utilization",
        WARN,
        change_epoch("timed", 1, launch_s=0.0485),
        "the host takes 48.5 ms to launch an iteration on rank 1, 97",
    ),
    CheckCase(
        "gpu-utilization",
        WARN,
        change_card(samples=samples_at(1410, "gpu_idle")),
        "GPU utilization is 40 % (this site cancels jobs below 60 %): use a larger batch=",
    ),
    CheckCase(
        "gpu-utilization",
        WARN,
        change_epoch("timed", 1, memory=FULL_MEMORY),
        "3 allocations freed cached memory first, at 15.9 GB",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_check_fires_on_its_case(case):
    assert_fires(case)


WITHOUT_UTILIZATION = {"throttled", "other-processes", "gpu-health"}

ABSENT = {
    "no GPU state": (change_every_rank(cards=()), WITHOUT_UTILIZATION),
    "GPU that tells nothing": (
        change_every_rank(cards=(Card(uuid="GPU-0"),)),
        WITHOUT_UTILIZATION,
    ),
}


@pytest.mark.parametrize("case", ABSENT)
def test_check_without_its_data_gives_no_result(case):
    change, absent = ABSENT[case]
    complete = {result.check for result in check_record(clean_record())}
    incomplete = {result.check for result in check_record(change(clean_record()))}
    assert complete - incomplete == absent


def test_reason_of_few_samples_does_not_count():
    samples = replace(samples_at(1400, "x"), throttle_reasons={"hw_slowdown": 0.04})
    record = change_card(samples=samples)(clean_record())
    assert result_of(check_record(record), "throttled").level is Level.PASS
