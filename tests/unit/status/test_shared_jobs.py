"""Cells that share a job, one after another: packs."""

from datetime import UTC, datetime

import pytest

from hpml_jobs.core.cell import Outcome
from tests.unit.slurm_output import SUBMITTED, sacct_line, squeue_line
from tests.unit.study_builder import StudyBuilder

JOB = "17"


@pytest.fixture
def pack(slurm, working_folder):
    """Three cells of one job."""
    builder = StudyBuilder(working_folder / "outputs" / "mine").with_batches(
        32, 64, 128
    )
    builder.sent_as(JOB, JOB, JOB)
    return builder


def test_running_shared_job_state_follows_each_attempt(slurm, pack):
    slurm.set_output("squeue", squeue_line(JOB, "RUNNING", node="gr001"))
    pack.end_attempt(32, JOB, Outcome.FAILED, "rank 1: no")
    pack.begin_attempt(64, JOB)
    assert pack.outcomes() == [Outcome.FAILED, Outcome.RUNNING, Outcome.PENDING]
    assert pack.states_by_batch()[32].reason == "rank 1: no"
    assert pack.states_by_batch()[64].doing == "starting"
    assert pack.states_by_batch()[128].reason == "waiting inside job 17"
    pack.end_attempt(64, JOB, Outcome.OK)
    assert pack.states_by_batch()[64].recorded
    assert pack.states_by_batch()[64].minutes == 20  # its own limit, not the pack's


def test_requeued_job_ignores_ends_of_earlier_run(slurm, pack):
    pack.end_attempt(32, JOB, Outcome.CANCELLED, "received SIGTERM")
    pack.end_attempt(64, JOB, Outcome.OK)
    slurm.set_output("squeue", squeue_line(JOB, "PENDING", "BeginTime"))
    assert pack.outcomes() == [Outcome.PENDING, Outcome.OK, Outcome.PENDING]
    slurm.set_output(
        "squeue", squeue_line(JOB, "RUNNING", node="gr001", start=str(SUBMITTED))
    )
    earlier = datetime.fromtimestamp(SUBMITTED - 300, UTC).isoformat()
    pack.end_attempt(32, JOB, Outcome.CANCELLED, "received SIGTERM", started=earlier)
    assert pack.outcomes() == [Outcome.PENDING, Outcome.OK, Outcome.PENDING]
    # a requeue so fast that clocks do not tell the runs apart
    pack.end_attempt(32, JOB, Outcome.CANCELLED, "received SIGTERM")
    assert pack.outcomes()[0] is Outcome.CANCELLED
    pack.begin_attempt(128, JOB, restart=1)
    assert pack.outcomes() == [Outcome.PENDING, Outcome.OK, Outcome.RUNNING]
    pack.begin_attempt(32, JOB, restart=1)
    assert pack.outcomes() == [Outcome.RUNNING, Outcome.OK, Outcome.RUNNING]
    assert pack.states_by_batch()[32].restarts == 1


@pytest.mark.parametrize(
    ("job_state", "interrupted", "not_started"),
    [
        ("TIMEOUT", Outcome.TIMEOUT, Outcome.TIMEOUT),
        ("PREEMPTED", Outcome.PREEMPTED, Outcome.PREEMPTED),
        ("COMPLETED", Outcome.MISSING, Outcome.MISSING),
    ],
)
def test_finished_job_ends_cells_not_started(
    slurm, pack, job_state, interrupted, not_started
):
    slurm.set_output("sacct", sacct_line(JOB, job_state))
    pack.end_attempt(32, JOB, Outcome.FAILED, "rank 1: no")
    pack.begin_attempt(64, JOB)
    assert pack.outcomes() == [Outcome.FAILED, interrupted, not_started]
    assert "before this cell started" in pack.states_by_batch()[128].reason
    assert "rank 1: no" in pack.states_by_batch()[32].reason


def test_job_timeout_outranks_wrapper_report(slurm, pack):
    slurm.set_output("sacct", sacct_line(JOB, "TIMEOUT"))
    pack.end_attempt(32, JOB, Outcome.CANCELLED, "received SIGTERM")
    assert pack.outcomes()[0] is Outcome.TIMEOUT


def test_shared_job_cell_has_its_own_times(slurm, pack):
    """A cell's times are those of its attempt, not of the job that it shared."""
    slurm.set_output("sacct", sacct_line(JOB, "FAILED", "1:0"))
    pack.end_attempt(32, JOB, Outcome.OK, started="2026-10-01T10:00:00+00:00")
    pack.end_attempt(64, JOB, Outcome.FAILED, "rank 1: no")
    states = pack.states_by_batch()
    assert states[32].elapsed_s == 60  # its record ended at 10:01
    assert states[128].elapsed_s is None  # its turn never came
    # the other one is sent again, and is alone in its job
    pack.sent_as("18", batches=(64,))
    assert (pack.states_by_batch()[32].warning, states[32].warning) == ("", "")
