"""Verdicts: a clean record passes every check, and every check fires on what it is there for."""

import pytest
from msgspec.structs import replace

from hpml_jobs.core.cell import Outcome, Protocol
from hpml_jobs.core.check_result import Level, Tier, in_short
from hpml_jobs.core.measurements import (
    CollectiveKind,
    Volume,
)
from hpml_jobs.core.script import Script
from hpml_jobs.core.strategies import Loader, Strategy
from hpml_jobs.results.checks import study as checks
from hpml_jobs.results.checks.study import check_record
from tests.unit.builders import DIGITS, a_cell, a_record
from tests.unit.check_cases import (
    DDP4,
    FACTS,
    OF_CARDS,
    PAUSE,
    CheckCase,
    assert_fires,
    attempt_between,
    baseline_record,
    case_id,
    change_epoch,
    change_facts,
    change_messages,
    change_microbenchmark,
    change_model,
    change_phases,
    change_rank,
    change_scheduling,
    check_records,
    clean_record,
    imported_record,
    late_rank,
    result_of,
    wait_for_cpu,
    with_attempt_times,
    with_neighbours,
)

FAIL, WARN = Level.FAIL, Level.WARN
ALL_REDUCE, BROADCAST = CollectiveKind.ALL_REDUCE, CollectiveKind.BROADCAST
STEPS = clean_record().ranks[0].timed.steps
STOPPED = replace(clean_record().ranks[0].timed.scheduling, continued_s=(4.0,))

RISING = tuple(STEPS.median_s * (1 + 0.02 * number) for number in range(10))


def own_replicas(strategy, start):
    """The user's own model, which differs on rank 2, and may have begun with other parameters."""

    def change(old):
        workload = replace(old.cell.workload, model="mygpt:build")
        cell = replace(old.cell, workload=workload, strategy=strategy)
        ranks = tuple(replace(rank, initial_hash="one start") for rank in old.ranks)
        of_rank = change_rank(2, parameters_hash="other", initial_hash=start)
        return of_rank(replace(old, cell=cell, ranks=ranks))

    return change


FSDP4 = a_cell(batch=32, strategy=Strategy.FSDP)
REDUCED = Volume(kind="reduce_scatter", purpose="gradients", bytes=104_616)
GATHERED = Volume(kind="all_gather", purpose="parameters", bytes=209_232)


OF_OTHERS = {"epoch-samples"}
"""Checks that do not apply to the clean study, without a script."""


ALONE = [
    CheckCase(
        "closure",
        FAIL,
        change_phases(forward_s=2.6),
        "phases miss the epoch by 2.34 % (limit 2 %)",
    ),
    CheckCase(
        "parameters",
        FAIL,
        change_model(parameters=9_231_114),
        "digits_cnn has 9,231,114 parameters",
    ),
    CheckCase(
        "loss",
        FAIL,
        change_epoch("timed", 1, loss=-0.1),
        "(at least 0.3466), so it is not",
    ),
    CheckCase(
        "loss",
        WARN,
        change_epoch("timed", 1, loss=7.0),
        "7 at most (limit 6.908, 3 x ln 10)",
    ),
    CheckCase(
        "replicas",
        FAIL,
        change_rank(2, parameters_hash="other"),
        "2 different replicas on 4 ranks",
    ),
    CheckCase(
        "replicas",
        FAIL,
        own_replicas(Strategy.ALLREDUCE, "one start"),
        "look for parameters that mygpt:build changes outside of the optimizer",
    ),
    CheckCase(
        "messages",
        FAIL,
        change_messages(kind="reduce"),
        "counted 0 bytes of gradients by all_r",
    ),
    CheckCase(
        "messages",
        FAIL,
        change_model(expected=(GATHERED, REDUCED)),
        "rank 0 counted 0 bytes of parameters by all_gather, not",
        FSDP4,
    ),
    CheckCase(
        "messages",
        FAIL,
        change_model(expected=(replace(REDUCED, bytes=REDUCED.bytes + 4),)),
        "rank 0 counted 16,738,560 bytes of gradients by reduce_scatter, not 16,739,200 (160 iter",
        FSDP4,
    ),
    CheckCase(
        "loader-bound",
        WARN,
        change_epoch("timed", 1, stall_s=0.96),
        "waiting for data is 10.5 % of the epoch on rank 1 on gr001 (limit 5 %): increase",
    ),
    CheckCase(
        "imbalance",
        WARN,
        late_rank(2, "forward_s", 0.5),
        "rank 2 on gr001 is late by 3.12 ms per iteration, in forward; other ranks wait",
    ),
    CheckCase(
        "incomplete",
        WARN,
        lambda old: replace(
            old, attempt=replace(old.attempt, incomplete="rank 1 killed")
        ),
        "a step after training did not finish: rank 1 killed: read its log",
    ),
    CheckCase(
        "short",
        WARN,
        lambda old: old,
        "4 iterations per epoch (at le",
        a_cell(batch=1280),
    ),
    CheckCase(
        "disturbed",
        WARN,
        change_scheduling("timed", busy_s=8.0 * (0.9 * 4 + 1.0)),
        "other programs used 1 of 12 CPUs on gr001, during the timed epoch: run it again",
    ),
    CheckCase(
        "disturbed",
        FAIL,
        change_epoch("timed", 1, scheduling=STOPPED, slow=PAUSE),
        "rank 1 on gr001 was stopped, for about 15 s, during the timed epoch",
    ),
    CheckCase(
        "disturbed",
        WARN,
        change_scheduling("timed", stolen_s=8.0),
        "other virtual machines took 1 of 12 CPUs on gr001",
    ),
    CheckCase(
        "disturbed",
        WARN,
        wait_for_cpu("timed", 1.6),
        "rank 0 on gr001 waited for a CPU for 20 % of the time, during the timed epoch",
    ),
    CheckCase(
        "disturbed",
        WARN,
        change_microbenchmark(busy_s=8.0 * (0.9 * 4 + 1.0)),
        "other programs used 1 of 12 CPUs on gr001, during the microbenchmark: run it again",
    ),
    CheckCase(
        "disturbed",
        WARN,
        change_epoch("instrumented", 2, scheduling=STOPPED, slow=PAUSE),
        "rank 2 on gr001 was stopped, for about 15 s, during the instrumented epoch",
    ),
    CheckCase(
        "overhead",
        WARN,
        change_epoch("instrumented", 3, epoch_s=8.8),
        "10 % longer than the timed",
    ),
    CheckCase(
        "disturbed",
        WARN,
        with_neighbours(jobs=3, same_user=1, users=("alice", "me")),
        "3 other jobs on its nodes at its start or its end, 1 of them of the same user (users: al",
    ),
    CheckCase(
        "drift",
        WARN,
        change_epoch("timed", steps=replace(STEPS, block_medians_s=RISING)),
        "are 13.73 % slower than the first 30 % (limit 5 % with a steady trend): measure",
    ),
    CheckCase(
        "oversubscribed",
        WARN,
        lambda old: replace(
            old, ranks=tuple(replace(r, affinity=(0, 1)) for r in old.ranks)
        ),
        "4 processes on 2 CPUs of gr001, so speedups here measure the scheduler: use as many",
    ),
    CheckCase(
        "buffers",
        WARN,
        change_rank(1, test_accuracy=0.55),
        "does not synchronize them (accuracy 55 % to 60 % over ranks)",
        a_cell(batch=32, strategy=Strategy.ALLREDUCE),
    ),
]

BESIDE = [
    CheckCase(
        "threads",
        WARN,
        change_rank(1, threads=8),
        "1 or 8 threads per process, threads=1",
    ),
    CheckCase(
        "conditions",
        WARN,
        change_facts(driver="535.1"),
        "driver 535.1 (theirs 550.54.15)",
    ),
    CheckCase(
        "conditions",
        WARN,
        change_facts(nccl_environment={"NCCL_PROFILER_PLUGIN": "x.so"}),
        "a profiler was on in all epochs: NCCL_PROFILER_PLUGIN=x.so: unset it",
    ),
    CheckCase(
        "efficiency",
        WARN,
        change_epoch("timed", epoch_s=5.0),
        "efficiency is 150 % over 4 GPUs",
    ),
    CheckCase(
        "overlap",
        WARN,
        with_attempt_times("2026-10-01T11:04", "2026-10-01T11:09"),
        "used the same GPUs",
    ),
]


@pytest.mark.parametrize("case", ALONE, ids=case_id)
def test_record_check_fires_on_its_case(case):
    assert_fires(case)


@pytest.mark.parametrize("case", BESIDE, ids=case_id)
def test_peer_check_fires_on_its_case(case):
    one = case.change(clean_record(case.cell))
    results = check_records([one, baseline_record()])[one.slug]
    (result,) = [r for r in results if r.check == case.check and case.words in r.reason]
    assert result.level is case.level


def test_other_systems_are_compared_within_a_table():
    other = change_facts(container="new.sif", driver="535.1")(clean_record())
    results = check_records([other, baseline_record()])[other.slug]
    (result,) = [r for r in results if r.check == "conditions"]
    assert result.tier is Tier.TABLE
    assert "in driver 535.1 (theirs" in result.reason
    assert result.reason.count("theirs") == 1


def clean_study():
    """A clean study: a cell with two repeats, and its baseline."""
    again = clean_record(
        a_cell(batch=32, repeat=1),
        attempt=attempt_between("2026-10-01T12:00", "2026-10-01T12:05"),
    )
    return [clean_record(), again, baseline_record()]


def test_replicas_of_a_script_may_differ_between_averagings():
    record = clean_record(a_cell(batch=32, script=Script(path="train.py")))
    ranks = [replace(rank, parameters_hash=str(rank.rank)) for rank in record.ranks]
    found = result_of(check_record(replace(record, ranks=tuple(ranks))), "replicas")
    assert (found.level, "local SGD" in found.reason) == (Level.WARN, True)
    alone = tuple(replace(rank, communication=None) for rank in ranks)
    found = result_of(
        check_record(replace(record, ranks=alone, exchange=None)), "replicas"
    )
    assert (found.level, "no exchange between ranks" in found.reason) == (
        Level.FAIL,
        True,
    )


def test_clean_record_passes_every_check():
    results = check_record(clean_record())
    assert len(results) == len(checks.MEASURED)
    assert {result.level for result in results} == {Level.PASS}
    assert in_short(results) == ""


def test_clean_study_passes_and_every_check_has_a_case():
    """A clean study passes every check, and each check has a case that makes it fire."""
    by_slug = check_records(clean_study())
    assert [in_short(results) for results in by_slug.values()] == ["", "", ""]
    names = {result.check for results in by_slug.values() for result in results}
    every = {check.name for group in checks.GROUPS.values() for check in group}
    assert names == every - OF_OTHERS
    assert (names - OF_CARDS) | OF_OTHERS == {
        case.check for case in [*ALONE, *BESIDE]
    } | {
        *("scatter", "epoch-samples"),
    }


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("protocol", [Protocol.LAB, Protocol.FULL])
def test_inapplicable_checks_give_no_result(strategy, protocol):
    gpus = 1 if strategy is Strategy.SINGLE else 4
    results = check_record(
        a_record(a_cell(strategy=strategy, gpus=gpus, protocol=protocol))
    )
    names = {result.check for result in results}
    assert {"parameters", "loss", "loader-bound", "short"} <= names
    if protocol is Protocol.LAB:
        assert not names & {"closure", "messages", "overhead"}
    if gpus == 1:
        assert not names & {"replicas", "buffers"}
    assert {v.check for v in results if v.level is not Level.PASS} <= {"buffers"}


def test_out_of_memory_record_is_not_checked():
    oom = a_record(
        a_cell(), outcome=Outcome.OOM, reason="out of memory", ranks=(), model=None
    )
    assert check_record(oom) == ()
    assert check_records([oom, clean_record()]).keys() == {DDP4.slug}


def test_gather_and_scatter_each_carry_all_gradients():
    both = clean_record(a_cell(batch=32, strategy=Strategy.GATHER_SCATTER))
    assert result_of(check_record(both), "messages").level is Level.PASS
    talk = both.ranks[0].communication
    out = change_rank(0, communication=replace(talk, messages=talk.messages[:1]))(both)
    result = result_of(check_record(out), "messages")
    assert result.level is Level.FAIL
    assert "0 bytes of gradients by scatter" in result.reason


def test_conditions_check_warns_only_the_outlier():
    odd = change_facts(torch="2.7.1")(clean_record(a_cell(batch=64)))
    others = [clean_record(a_cell(batch=batch)) for batch in (32, 128, 256, 512)]
    levels = {
        slug: result_of(results, "conditions").level
        for slug, results in check_records([odd, *others]).items()
    }
    assert levels.pop(odd.slug) is Level.WARN
    assert {*levels.values()} == {Level.PASS}


def test_cells_of_both_loaders_are_not_compared():
    settings = {"loader": Loader.DEVICE, "loader_workers": 0}
    one = clean_record(
        a_cell(gpus=1, batch=32, strategy=Strategy.SINGLE, **settings), epoch_s=99.0
    )
    results = check_records([clean_record(), one])[DDP4.slug]
    assert "efficiency" not in {result.check for result in results}
    both = check_records([clean_record(a_cell(batch=32, **settings)), one])
    assert result_of(both[one.slug], "efficiency").level is Level.WARN


def test_overlap_is_checked_across_tables_other_checks_not():
    other = clean_record(
        a_cell(batch=32, workload=replace(DIGITS, lr=0.1)),
        facts=replace(FACTS, torch="1"),
    )
    results = check_records([clean_record(), other])[DDP4.slug]
    assert result_of(results, "overlap").level is Level.WARN
    assert "conditions" not in {result.check for result in results}


# ---- imported timings ----


def results_of_row(record):
    """The results of a row that is alone in its study."""
    return check_records([record])[record.slug]


ELSEWHERE = [
    ("loader-bound", WARN, {"train_s": 5.0}, "stall is 52.38 % of the epoch"),
    (
        "short",
        WARN,
        {"batch": 12_500, "iterations": 1},
        "1 iteration per epoch (at least 10 are needed)",
    ),
]


@pytest.mark.parametrize(("check", "level", "columns", "words"), ELSEWHERE)
def test_imported_timing_check_fires_on_its_case(check, level, columns, words):
    result = result_of(results_of_row(imported_record(**columns)), check)
    assert result.level is level
    assert words in result.reason
