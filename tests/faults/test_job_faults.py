"""Faults of jobs: a process, an array task or a job is killed, cancelled or preempted."""

import json
import os
import signal
import time

import pytest

from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.journey, pytest.mark.fault]

TWO = ("gpus=2", "batch=16")


@pytest.fixture(scope="module")
def faulted_studies(make_study):
    """Three studies submitted together: they wait for SLURM's timers, not for the processor."""
    preempted = (
        "gpus=1",
        "batch=16",
        "cluster.partition=preempt",
        "+cluster.sbatch.nodelist=gv001",
        "gpu_type=v100",
    )
    cases = {
        "preempted": make_study("preempted", *preempted, model="Blocking"),
        "killed": make_study("killed", *TWO, model="user_code:KilledModel"),
        "step": make_study("step", *TWO, model="Blocking"),
    }
    for process in [case.start_submit() for case in cases.values()]:
        _, stderr = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, stderr
    return cases


def test_killed_worker_fails_cell_and_names_rank(faulted_studies, rig, record_fault):
    case = faulted_studies["killed"]
    case.wait_until_finished()
    assert rig.wait_for_state(case.job, {"FAILED"}) == ["FAILED"]
    assert "rank 1 killed by signal 9 (out of memory?)" in case.state["reason"]
    record_fault("kill -9 of a worker", case, "1 failed", "rank and signal are named")


def test_killed_wrapper_ends_its_workers(faulted_studies, rig, record_fault):
    case = faulted_studies["step"]
    case.wait_until_blocked(2)
    os.kill(case.wrapper_pid(), signal.SIGKILL)
    assert rig.wait_for_state(case.job, {"FAILED"}) == ["FAILED"]
    case.wait_until_finished()
    record_fault("kill -9 of the job's wrapper", case, "1 failed")


def test_preempted_cell_is_requeued_and_writes_one_record(
    faulted_studies, rig, record_fault
):
    case = faulted_studies["preempted"]
    case.wait_until_blocked(1)
    job = case.job
    # With a grace time SLURM checks only every 30 s.
    rig.run(
        "scontrol", "update", "PartitionName=preempt", "GraceTime=0"
    ).check_returncode()
    preempting = rig.sbatch(
        "--nodelist=gv001", "--gres=gpu:v100:2", "--time=5", script="true"
    )
    rig.wait_for_state(preempting, {"COMPLETED"})
    rig.run(
        "scontrol", "update", "PartitionName=preempt", "GraceTime=2"
    ).check_returncode()
    case.wait_until_blocked(1, attempt="r1")
    (slug,) = case.wait_until_finished()
    record = case.study.cell(slug).read_record()
    assert record is not None
    assert record.attempt.restart == 1
    states = [row["State"] for row in rig.sacct(job, "State", duplicates=True)]
    assert states == ["PREEMPTED", "COMPLETED"]
    attempts = sorted(
        p.name for p in case.study.cell(slug).attempts.iterdir() if p.is_dir()
    )
    assert attempts == [f"{job}.r0", f"{job}.r1"]
    record_fault(
        "preemption with requeue",
        case,
        "1 ok",
        "two attempts, the record is the second attempt's",
    )


@pytest.mark.long
def test_suspended_job_is_called_disturbed(make_study, login, rig, record_fault):
    case = make_study("suspended", *TWO, model="BlockingWhenTimed").submit()
    case.wait_until_blocked(2)
    rig.run("scontrol", "suspend", case.job).check_returncode()
    assert rig.wait_for_state(case.job, {"SUSPENDED"}) == ["SUSPENDED"]
    assert case.state["left_s"] is None
    time.sleep(3)
    rig.run("scontrol", "resume", case.job).check_returncode()
    ((slug, state),) = case.wait_until_finished().items()
    assert state["outcome"] == "ok", state["reason"]
    record = case.study.cell(slug).read_record()
    assert all(rank.timed.scheduling.continued_s for rank in record.ranks)
    assert "SLURM suspended its job for" in case.state["warning"]
    collected = login.ok("collect", "suspended", "--all")
    assert "was stopped" in collected
    assert "SLURM suspended its job for" in collected
    again = json.loads(login.ok("resubmit", "suspended", "--disturbed", "--json"))
    assert [row["cell"] for row in again["cells"]] == [slug]
    case.wait_until_finished()
    record_fault(
        "scontrol suspend in the timed epoch", case, "1 ok", "check disturbed, seconds"
    )


@pytest.mark.long
def test_cell_over_time_limit_gives_outcome_timeout(make_study, rig, record_fault):
    case = make_study("timeout", *TWO, model="Blocking").submit()
    case.wait_until_blocked(2)
    # shorter only now: on a busy machine the ranks take more than a minute to start
    limit = ("scontrol", "update", f"JobId={case.job}", "TimeLimit=1")
    rig.run(*limit).check_returncode()
    assert rig.wait_for_state(case.job, {"TIMEOUT"}) == ["TIMEOUT"]
    case.wait_until_finished()
    assert "ranks 0-1 were in " in case.state["reason"]
    assert "in block" in case.state["reason"]
    record_fault("time limit", case, "1 timeout", "the line of each rank is named")


@pytest.mark.long
def test_killed_torchrun_ends_its_workers(make_study, rig, record_fault):
    case = make_study("torchrun", *TWO, model="Blocking").submit()
    case.wait_until_blocked(2)
    os.kill(case.torchrun_pid(), signal.SIGKILL)
    assert rig.wait_for_state(case.job, {"FAILED"}) == ["FAILED"]
    case.wait_until_finished()
    assert case.state["reason"].startswith("torchrun killed by signal 9")
    record_fault("kill -9 of torchrun", case, "1 failed", "torchrun is named")


@pytest.mark.long
def test_killed_slurmstepd_leaves_no_process(make_study, rig, record_fault):
    case = make_study("stepd", *TWO, model="Blocking").submit()
    case.wait_until_blocked(2)
    os.kill(case.step_daemon_pid(), signal.SIGKILL)
    # unnoticed
    assert rig.wait_for_state(case.job, {"COMPLETED"}) == ["COMPLETED"]
    case.wait_until_finished()
    record_fault(
        "kill -9 of the step's slurmstepd",
        case,
        "1 missing",
        "SLURM's state is COMPLETED",
    )


@pytest.mark.long
def test_cancelled_array_task_leaves_other_tasks_running(make_study, rig, record_fault):
    case = make_study("task", "-m", "gpus=1", "batch=16,32", model="Blocking").submit()
    case.wait_until_blocked(2)
    jobs = [state["job"] for state in case.states().values()]
    assert len({job.split("_")[0] for job in jobs}) == 1
    rig.run("scancel", jobs[1]).check_returncode()
    assert rig.wait_for_state(jobs[1], {"CANCELLED"}) == ["CANCELLED"]
    case.wait_until_finished()
    record_fault("scancel of one array task", case, "1 cancelled, 1 ok", "one array")
