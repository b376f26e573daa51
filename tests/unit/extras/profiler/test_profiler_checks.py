"""Checks of the instruments against the profiler: what fires them, and what they need."""

import pytest
from msgspec.structs import replace

from hpml_jobs.checks.study import check_record
from hpml_jobs.core.check_result import Level, Tier
from hpml_jobs.core.measurements import CollectiveKind, Step
from hpml_jobs.core.strategies import Device, Strategy
from tests.unit.builders import a_cell
from tests.unit.check_cases import (
    CheckCase,
    assert_fires,
    case_id,
    change_kernels,
    change_scheduling,
    change_step,
    change_trace,
    clean_record,
    result_of,
)
from tests.unit.checks.test_explained import shown
from tests.unit.checks.test_recorded_gpus import recorded

FAIL, WARN = Level.FAIL, Level.WARN
ALL_REDUCE, BROADCAST = CollectiveKind.ALL_REDUCE, CollectiveKind.BROADCAST
ON_CPU = a_cell(batch=32, device=Device.CPU)
NAMES = {"profiler", "profiler-messages", "profiler-phases", "buffer-copies"}

CASES = [
    CheckCase(
        "profiler-messages",
        FAIL,
        change_trace(messages=21),
        "20 collectives, the prof",
        ON_CPU,
    ),
    CheckCase(
        "profiler-messages",
        FAIL,
        change_trace(message_bytes=500),
        "the profiler 500",
        ON_CPU,
    ),
    CheckCase(
        "profiler-messages",
        WARN,
        change_kernels(ALL_REDUCE, messages=11),
        "counted 10 all-reduces, the profiler 11",
    ),
    CheckCase(
        "profiler-messages",
        WARN,
        change_kernels(BROADCAST, message_bytes=900),
        "counted 1,000 bytes of broadcasts, the profiler 900",
    ),
    CheckCase(
        "profiler",
        WARN,
        change_trace(instruments_comm_s=0.22),
        "communication differs by 10 % from the profiler's (limit 5",
        ON_CPU,
    ),
    CheckCase(
        "profiler",
        WARN,
        change_kernels(ALL_REDUCE, instruments_s=0.198),
        "time of all-reduces differs by 10 % from the profiler's (limit 5 %), 1.8 ms per message",
    ),
    CheckCase(
        "buffer-copies",
        WARN,
        change_kernels(BROADCAST, instruments_s=0.14),
        "14 ms per iteration, 2 ms of it in NCCL's broadcasts; the copies are 6 % of the iterati",
    ),
    CheckCase(
        "profiler-phases",
        WARN,
        change_trace(instruments_busy_s=1.55),
        "computation takes 1.56 s, the GPU computed for 1.7 s (7 % of the profiler's window",
    ),
    CheckCase(
        "profiler-phases",
        WARN,
        change_trace(instruments_stall_s=0.4),
        "stall is 0.4 s, the GPU was idle for 0.15 s (12.5 % of the profiler's window",
    ),
    CheckCase(
        "profiler-phases",
        WARN,
        change_trace(instruments_busy_s=1.99),
        "launch gaps are 0.3 s by computation and 0.11 s by idle time (9.5 % of the profiler's",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_check_fires_on_its_case(case):
    assert_fires(case)


def test_cell_without_a_trace_is_not_judged():
    old = clean_record()
    assert {result.check for result in check_record(old)} >= NAMES
    bare = replace(old, ranks=tuple(replace(rank, profiler=None) for rank in old.ranks))
    assert not NAMES & {result.check for result in check_record(bare)}


def test_buffers_without_communication_are_not_judged():
    old = clean_record()
    bare = replace(
        old, ranks=tuple(replace(rank, communication=None) for rank in old.ranks)
    )
    assert NAMES - {result.check for result in check_record(bare)} == {"buffer-copies"}


def test_profiler_without_bytes_compares_collectives_only():
    results = check_record(change_trace(message_bytes=None)(clean_record()))
    assert result_of(results, "profiler-messages").level is Level.PASS


def test_profiler_is_not_compared_with_one_process_on_a_gpu():
    record = change_trace(messages=21)(clean_record())
    alone = replace(record, cell=a_cell(gpus=1, strategy=Strategy.DDP))
    assert "profiler-messages" in {result.check for result in check_record(record)}
    assert "profiler-messages" not in {result.check for result in check_record(alone)}


def test_failure_is_shown_beside_the_number_in_any_tier():
    on_cpu = change_trace(messages=21)(clean_record(ON_CPU))
    on_gpu = change_trace(messages=21)(clean_record())
    tiers = [
        result_of(check_record(r), "profiler-messages").tier for r in (on_cpu, on_gpu)
    ]
    assert tiers == [Tier.NUMBER, Tier.LIST]


def test_disturbed_profiler_explains_its_disagreement():
    odd = change_kernels(CollectiveKind.ALL_REDUCE, instruments_s=99.0)(clean_record())
    assert "profiler" in shown(odd)
    busy = {"busy_s": 8.0 * (3.6 + 6.0)}
    results = check_record(change_step(Step.PROFILED, **busy)(odd))
    assert result_of(results, "profiler").tier is Tier.LIST
    assert result_of(results, "disturbed").tier is Tier.LIST
    assert "profiler" not in shown(change_scheduling("instrumented", **busy)(odd))


def test_exchange_of_one_process_is_launches_for_the_profiler_too():
    """NCCL has no kernel where one process would send to itself."""
    record = recorded("h100-allreduce.json")
    assert record.ranks[0].profiler.messages == 0
    result = result_of(check_record(record), "profiler-phases")
    assert result.level is Level.PASS
    assert (
        "launch gaps are 0.356 s by computation and 0.356 s by idle time"
        in result.reason
    )
