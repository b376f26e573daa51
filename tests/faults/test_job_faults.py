"""Faults of jobs: what ends one process, one task or one job of a study."""

import os
import signal

import pytest

from tests.conftest import Program
from tests.faults.fault_study import Case, wait_until
from tests.rig import Rig

pytestmark = [pytest.mark.journey, pytest.mark.fault]

TWO = ("gpus=2", "batch=16")


@pytest.fixture(scope="module")
def struck(make):
    """All at once: they wait for each other on SLURM's slow clock, not on the processor."""
    preempted = ("cluster.partition=preempt", "+cluster.sbatch.nodelist=gv001", "gpu_type=v100")
    cases = {
        "preempted": make("preempted", *TWO, *preempted, model="Held"),
        "killed": make("killed", *TWO, model="user_code:Killed"),
        "step": make("step", *TWO, model="Held"),
        "cancelled": make("cancelled", *TWO, model="Held"),
    }
    for sending in [case.begin() for case in cases.values()]:
        _, complaint = sending.communicate(timeout=120)
        assert sending.returncode == 0, complaint
    return cases


def test_killed_worker_fails_cell_and_names_rank(struck, rig: Rig, ledger) -> None:
    case = struck["killed"]
    case.finish()
    assert rig.wait_for_state(case.job, {"FAILED"}) == ["FAILED"]
    assert "rank 1 killed by signal 9 (out of memory?)" in case.state["reason"]
    ledger("kill -9 of a worker", case, "1 failed", "rank and signal are named")


def test_scancel_gives_outcome_cancelled(struck, rig: Rig, ledger) -> None:
    case = struck["cancelled"]
    case.wait_held(2)
    rig.run("scancel", case.job).check_returncode()
    assert rig.wait_for_state(case.job, {"CANCELLED"}) == ["CANCELLED"]
    case.finish()
    ledger("scancel by hand", case, "1 cancelled")


def test_killed_wrapper_ends_its_workers(struck, rig: Rig, ledger) -> None:
    case = struck["step"]
    case.wait_held(2)
    os.kill(case.wrapper(), signal.SIGKILL)
    assert rig.wait_for_state(case.job, {"FAILED"}) == ["FAILED"]
    case.finish()
    ledger("kill -9 of the job's wrapper", case, "1 failed")


def test_preempted_cell_is_requeued_and_writes_one_record(struck, rig: Rig, ledger) -> None:
    case = struck["preempted"]
    case.wait_held(2)
    job = case.job
    # With a grace time SLURM looks at the clock only every 30 s.
    rig.run("scontrol", "update", "PartitionName=preempt", "GraceTime=0").check_returncode()
    taken = rig.sbatch("--nodelist=gv001", "--gres=gpu:v100:2", "--time=5", script="true")
    rig.wait_for_state(taken, {"COMPLETED"}, timeout_s=180)
    rig.run("scontrol", "update", "PartitionName=preempt", "GraceTime=2").check_returncode()
    wait_until(lambda: list(case.study.cells_folder.glob("*/held-*.r1-*")), "it has begun again")
    (slug,) = case.finish()
    record = case.study.cell(slug).read_record()
    assert record is not None
    assert record.attempt.restart == 1
    states = [row["State"] for row in rig.sacct(job, "State", duplicates=True)]
    assert states == ["PREEMPTED", "COMPLETED"]
    attempts = sorted(p.name for p in case.study.cell(slug).attempts.iterdir() if p.is_dir())
    assert attempts == [f"{job}.r0", f"{job}.r1"]
    ledger(
        "preemption with requeue", case, "1 ok", "two attempts, the record is the second attempt's"
    )


@pytest.mark.long
def test_failing_cell_gives_outcome_failed_and_reason(
    make, desk: Program, rig: Rig, ledger
) -> None:
    case: Case = make("failing", *TWO, model="user_code:Raises").send()
    case.finish()
    assert rig.wait_for_state(case.job, {"FAILED"}) == ["FAILED"]
    assert "rank 1: ValueError: this model cannot count" in case.state["reason"]
    shown = desk.ok("logs", "failing")
    assert "rank 1 failed first" in shown
    assert "this model cannot count" in shown
    assert "user_code.py" in shown
    ledger("a rank raises", case, "1 failed", "the first failing rank is named")


@pytest.mark.long
def test_cell_over_time_limit_gives_outcome_timeout(make, rig: Rig, ledger) -> None:
    case: Case = make("timeout", *TWO, "minutes=1", model="Held").send()
    case.wait_held(2)
    assert rig.wait_for_state(case.job, {"TIMEOUT"}, timeout_s=300) == ["TIMEOUT"]
    case.finish()
    ledger("time limit", case, "1 timeout")


@pytest.mark.long
def test_killed_torchrun_ends_its_workers(make, rig: Rig, ledger) -> None:
    case: Case = make("torchrun", *TWO, model="Held").send()
    case.wait_held(2)
    os.kill(case.torchrun(), signal.SIGKILL)
    assert rig.wait_for_state(case.job, {"FAILED"}) == ["FAILED"]
    case.finish()
    assert case.state["reason"].startswith("torchrun killed by signal 9")
    ledger("kill -9 of torchrun", case, "1 failed", "torchrun is named")


@pytest.mark.long
def test_killed_slurmstepd_leaves_no_process(make, rig: Rig, ledger) -> None:
    case: Case = make("stepd", *TWO, model="Held").send()
    case.wait_held(2)
    os.kill(case.step(), signal.SIGKILL)
    assert rig.wait_for_state(case.job, {"COMPLETED"}, 240) == ["COMPLETED"]  # unnoticed
    case.finish()
    ledger("kill -9 of the step's slurmstepd", case, "1 missing", "SLURM's state is COMPLETED")


@pytest.mark.long
def test_cancelled_array_task_leaves_other_tasks_running(make, rig: Rig, ledger) -> None:
    case: Case = make("task", "-m", "gpus=1", "batch=16,32", model="Held").send()
    case.wait_held(2)
    jobs = [state["job"] for state in case.states().values()]
    assert len({job.split("_")[0] for job in jobs}) == 1
    rig.run("scancel", jobs[1]).check_returncode()
    assert rig.wait_for_state(jobs[1], {"CANCELLED"}) == ["CANCELLED"]
    case.finish()
    ledger("scancel of one array task", case, "1 cancelled, 1 ok", "one array")
