"""Verdicts: a clean record passes every check, and every check fires on what it is there for."""

import pytest
from msgspec.structs import replace

from hpml_jobs.core.cell import Outcome, Protocol
from hpml_jobs.core.check_result import Affected, Level, Tier, in_short
from hpml_jobs.core.measurements import (
    CollectiveKind,
    Volume,
)
from hpml_jobs.core.recipe import Recipe
from hpml_jobs.core.script import READS_ALL, Script
from hpml_jobs.core.strategies import Device, Loader, Strategy
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
    attempt_an_hour_later,
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
ON_CPU = a_cell(batch=32, device=Device.CPU)
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


def gathered_for_batches(old):
    """160 iterations of 3 accumulated batches, each of which gathers the parameters."""
    volume = replace(GATHERED, each_batch=True)
    stalls = replace(old.ranks[0].timed.stalls, batches=480)
    return change_epoch("instrumented", stalls=stalls)(
        change_model(expected=(volume,))(old)
    )


ALONE = [
    CheckCase(
        "closure",
        FAIL,
        change_phases(forward_s=2.6),
        "phases miss the epoch by 2.34 % (limit 2 %)",
    ),
    CheckCase(
        "closure",
        FAIL,
        change_phases(forward_s=2.5),
        "limit 1 %",
        ON_CPU,
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
    CheckCase("loss", FAIL, change_epoch("timed", 1, accuracy=1.5), "accuracy is 1.5"),
    CheckCase(
        "loss",
        FAIL,
        change_epoch("timed", 1, accuracy=0.0, loss=0.05),
        "(at least 0.6931)",
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
        own_replicas(Strategy.ALLREDUCE, "other start"),
        "your model starts with other parameters on each rank: in mygpt:build draw random numbers",
    ),
    CheckCase(
        "replicas",
        FAIL,
        own_replicas(Strategy.ALLREDUCE, "one start"),
        "look for parameters that mygpt:build changes outside of the optimizer",
    ),
    CheckCase(
        "replicas",
        FAIL,
        own_replicas(Strategy.DDP, "other start"),
        "look for parameters that mygpt:build changes outside of the optimizer",
    ),
    CheckCase(
        "messages",
        FAIL,
        change_rank(2, communication=None),
        "rank 2 counted no messages",
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
        "messages",
        FAIL,
        gathered_for_batches,
        "by all_gather, not 100,431,360 (480 batches x 209,232 bytes)",
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
        "other processes used 1 of 12 CPUs on gr001, during the timed epoch: run it again",
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
        change_scheduling("timed", throttled_s=2.0),
        "a CPU quota (cgroup) of rank 0 on gr001 withheld 2 CPU-seconds",
    ),
    CheckCase(
        "disturbed",
        WARN,
        change_scheduling("timed", stolen_s=8.0),
        "the hypervisor withheld 1 of 12 CPUs on gr001",
    ),
    CheckCase(
        "disturbed",
        WARN,
        wait_for_cpu("timed", 1.6),
        "rank 0 on gr001 waited for a CPU for 20 % of the time, during the timed epoch",
    ),
    CheckCase(
        "disturbed",
        FAIL,
        wait_for_cpu("timed", 6.3),
        "rank 0 on gr001 waited for a CPU for 79 % of the time, during the timed epoch",
    ),
    CheckCase(
        "disturbed",
        WARN,
        change_microbenchmark(busy_s=8.0 * (0.9 * 4 + 1.0)),
        "other processes used 1 of 12 CPUs on gr001, during the microbenchmark: run it again",
    ),
    CheckCase(
        "disturbed",
        WARN,
        change_epoch("instrumented", 2, scheduling=STOPPED, slow=PAUSE),
        "rank 2 on gr001 was stopped, for about 15 s, during the instrumented epoch",
    ),
    CheckCase(
        "disturbed",
        WARN,
        change_epoch("unsynced", 2, scheduling=STOPPED, slow=PAUSE),
        "rank 2 on gr001 was stopped, for about 15 s, during the epoch without exchange",
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
        "overhead",
        WARN,
        change_epoch("instrumented", epoch_s=6.35),
        "the timed epoch is 25.98 % longer than the instrumented one (limit 5 %): run it",
    ),
    CheckCase(
        "drift",
        WARN,
        change_epoch("timed", steps=replace(STEPS, block_medians_s=RISING)),
        "are 13.73 % slower than the first 3 (limit 5 %); Kendall's S is 45 (limit 27): measure",
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
        "does not synchronize them (accuracy 0.5500 to 0.6000 over ranks)",
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


def test_threads_other_than_requested_and_than_the_baseline_are_two_lines():
    four = replace(
        clean_record(), ranks=tuple(replace(r, threads=4) for r in clean_record().ranks)
    )
    results = check_records([four, baseline_record()])[four.slug]
    assert [(r.level, r.remedy) for r in results if r.check == "threads"] == [
        (WARN, "unset OMP_NUM_THREADS in the job's environment"),
        (WARN, "resubmit all cells with one threads="),
    ]


@pytest.mark.parametrize(
    ("changes", "differing"),
    [
        ({"container": "new.sif"}, "container new.sif"),
        ({"container": "new.sif", "driver": "535.1"}, "driver 535.1"),
    ],
)
def test_other_systems_are_compared_within_a_table(changes, differing):
    other = change_facts(**changes)(clean_record())
    results = check_records([other, baseline_record()])[other.slug]
    (result,) = [r for r in results if r.check == "conditions"]
    assert result.tier is Tier.TABLE
    assert f"in {differing} (theirs" in result.reason
    assert result.reason.count("theirs") == 1


def clean_study():
    """A clean study: a cell with two repeats, and its baseline."""
    again = clean_record(
        a_cell(batch=32, repeat=1),
        attempt=attempt_between("2026-10-01T12:00", "2026-10-01T12:05"),
    )
    return [clean_record(), again, baseline_record()]


def test_script_that_failed_after_its_timed_window_has_a_warning():
    record = clean_record(a_cell(batch=32, script=Script(path="train.py")))
    reason = "rank 0: RuntimeError: loss is nan"
    failed = replace(record, attempt=replace(record.attempt, incomplete=reason))
    found = result_of(check_record(failed), "incomplete")
    assert (found.level, found.tier) == (Level.WARN, Tier.NUMBER)
    assert Affected.TIME in found.affects
    assert f"the script failed after its timed window: {reason}: read" in found.reason


def test_threads_that_a_script_sets_are_to_be_requested():
    record = clean_record(a_cell(batch=32, script=Script(path="train.py")))
    ranks = tuple(replace(rank, threads=5) for rank in record.ranks)
    found = result_of(
        check_records([replace(record, ranks=ranks)])[record.slug], "threads"
    )
    assert found.reason.endswith(": set threads=5, as the script does")


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


def test_script_whose_processes_all_pass_over_all_data_is_found():
    script = Script(path="train.py")
    alone = clean_record(a_cell(gpus=1, batch=32, script=script))
    shared = clean_record(a_cell(batch=32, script=script))
    ranks = tuple(
        replace(
            rank, epochs=tuple(replace(e, samples=4 * e.samples) for e in rank.epochs)
        )
        for rank in shared.ranks
    )
    same, other = (
        check_records([alone, each])[shared.slug]
        for each in (shared, replace(shared, ranks=ranks))
    )
    assert result_of(same, "epoch-samples").level is Level.PASS
    found = result_of(other, "epoch-samples")
    assert (found.level, found.affects) == (Level.FAIL, (Affected.TIME,))
    assert (
        "an epoch has 81,920 samples, on one GPU 20,480: let the script share"
        in found.reason
    )


def test_windows_of_a_script_whose_processes_all_read_all_data_have_a_note():
    record = clean_record(
        a_cell(batch=32, script=Script(path="train.py", window=(5, 20)))
    )
    facts = replace(record.facts, in_windows=True, missing=(f"rank 0: {READS_ALL}",))
    found = result_of(
        check_records([replace(record, facts=facts)])[record.slug], "epoch-samples"
    )
    assert (found.level, found.tier) == (Level.WARN, Tier.TABLE)
    assert found.reason.startswith(READS_ALL)


def test_buffers_check_passes_without_batchnorm_buffers():
    made = clean_record(a_cell(batch=32, strategy=Strategy.ALLREDUCE))
    ranks = tuple(replace(rank, buffers_hash="x") for rank in made.ranks)
    result = result_of(check_record(replace(made, ranks=ranks)), "buffers")
    assert result.level is Level.PASS
    assert "the same buffers on all 4 ranks" in result.reason


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


def test_conditions_check_warns_cell_unlike_its_baseline():
    others = [clean_record(a_cell(batch=batch)) for batch in (64, 128, 256, 512)]
    odd = change_facts(torch="2.7.1")(baseline_record())
    by_slug = check_records([clean_record(), odd, *others])
    assert result_of(by_slug[DDP4.slug], "conditions").level is Level.WARN
    assert result_of(by_slug[others[0].slug], "conditions").level is Level.PASS


def test_efficiency_above_one_due_to_data_loading_warns():
    waiting = change_epoch("timed", stall_s=14.0)(baseline_record(epoch_s=44.0))
    result = result_of(
        check_records([clean_record(), waiting])[DDP4.slug], "efficiency"
    )
    assert result.level is Level.WARN
    assert "over 4 GPUs (limit 105 %), 95.66 % without data loading" in result.reason


def test_cells_of_both_loaders_are_not_compared():
    settings = {"loader": Loader.DEVICE, "loader_workers": 0}
    one = clean_record(
        a_cell(gpus=1, batch=32, strategy=Strategy.SINGLE, **settings), epoch_s=99.0
    )
    results = check_records([clean_record(), one])[DDP4.slug]
    assert "efficiency" not in {result.check for result in results}
    both = check_records([clean_record(a_cell(batch=32, **settings)), one])
    assert result_of(both[one.slug], "efficiency").level is Level.WARN


def test_comparisons_need_plain_baseline_and_same_treatment():
    scaled = Recipe(name="scaled", scaled=True)
    one = clean_record(
        a_cell(gpus=1, batch=32, strategy=Strategy.SINGLE, recipe=scaled), epoch_s=60.0
    )
    dp = clean_record(
        a_cell(batch=32, strategy=Strategy.DP, recipe=scaled),
        attempt=attempt_an_hour_later(),
    )
    result = {
        result.check: result.level
        for result in check_records([clean_record(), one, dp])[DDP4.slug]
    }
    assert "efficiency" not in result


def test_overlap_of_one_second_is_ignored():
    later = with_attempt_times("2026-10-01T10:05", "2026-10-01T10:10")(
        baseline_record()
    )
    assert (
        result_of(check_records([clean_record(), later])[DDP4.slug], "overlap").level
        is Level.PASS
    )


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
        "1 iteration per epoch (at least 10)",
    ),
]


@pytest.mark.parametrize(("check", "level", "columns", "words"), ELSEWHERE)
def test_imported_timing_check_fires_on_its_case(check, level, columns, words):
    result = result_of(results_of_row(imported_record(**columns)), check)
    assert result.level is level
    assert words in result.reason


def test_imported_epoch_time_alone_has_few_checks():
    assert {result.check for result in results_of_row(imported_record())} == {"short"}


def test_failed_checks_have_a_short_summary():
    worse = change_messages(count=1)(change_rank(1, threads=8)(clean_record()))
    results = check_records([worse])[worse.slug]
    assert in_short(results) == "1 failed check: messages; 1 warning: threads"


def test_short_summary_leaves_out_lower_tiers():
    beside = with_neighbours(jobs=3, same_user=1, users=("alice", "me"))
    both = beside(change_epoch("timed", stall_s=0.96)(clean_record()))
    results = [r for r in check_record(both) if r.level is Level.WARN]
    assert {r.tier for r in results} == {Tier.TABLE, Tier.LIST}
    assert in_short(results) == ""
