"""SLURM without accounting, SLURM that does not answer, and slow files."""

import os
import time

import pytest

from hpml_jobs.core.cell import Outcome
from hpml_jobs.status.query import read_answers
from tests.unit.slurm_output import sacct_line, squeue_line
from tests.unit.study_builder import StudyBuilder

JOB = "17_0"
DISABLED = "Slurm accounting storage is disabled\n"
GONE = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"


@pytest.fixture
def builder(slurm, working_folder):
    """Two cells of one array."""
    study = StudyBuilder(working_folder / "outputs" / "mine").with_batches(32, 64)
    study.sent_as(JOB, "17_1")
    return study


def disable_accounting(slurm):
    slurm.set_output("sacct", err=DISABLED, code=1)


def make_slurm_unresponsive(slurm):
    slurm.set_output("squeue", err=GONE, code=1)
    slurm.set_output(
        "sacct", err="sacct: error: Problem talking to the database\n", code=1
    )


def test_outcome_from_squeue_is_kept_without_accounting(slurm, builder):
    disable_accounting(slurm)
    ended = squeue_line(JOB, "TIMEOUT", node="gr001") + squeue_line(
        "17_1", "FAILED", node="gr002"
    )
    slurm.set_output("squeue", ended)
    assert builder.outcomes() == [Outcome.TIMEOUT, Outcome.FAILED]
    slurm.set_output("squeue")  # forgotten after MinJobAge
    assert builder.outcomes() == [Outcome.TIMEOUT, Outcome.FAILED]
    assert builder.states_by_batch()[32].elapsed_s == 60
    make_slurm_unresponsive(slurm)
    assert builder.outcomes() == [Outcome.TIMEOUT, Outcome.FAILED]


def test_vanished_job_without_accounting_is_missing(slurm, builder):
    disable_accounting(slurm)
    slurm.set_output("squeue", squeue_line(JOB, "RUNNING", node="gr001"))
    builder.end_attempt(64, "17_1", Outcome.FAILED, "rank 0: no")
    assert builder.outcomes() == [Outcome.RUNNING, Outcome.FAILED]
    slurm.set_output("squeue")
    assert builder.outcomes() == [Outcome.MISSING, Outcome.FAILED]
    reason = builder.states_by_batch()[32].reason
    assert "ended without a record or an exit report" in reason
    assert "accounting storage is disabled" in reason


def test_unresponsive_controller_is_unknown_since_last_answer(slurm, builder):
    slurm.set_output(
        "squeue",
        squeue_line(JOB, "RUNNING", node="gr001") + squeue_line("17_1", "PENDING"),
    )
    assert builder.outcomes() == [Outcome.RUNNING, Outcome.PENDING]
    answered = read_answers(builder.study).answered
    at = time.strftime("%H:%M", time.localtime(answered))
    os.utime(builder.study.root / "seen.json", (0, 0))
    make_slurm_unresponsive(slurm)
    assert builder.outcomes() == [Outcome.UNKNOWN, Outcome.UNKNOWN]
    assert builder.states_by_batch()[32].reason.startswith(
        f"unknown since {at} (running then): squeue: slurm_load_jobs error: Unable to contact"
    )
    assert "(pending then)" in builder.states_by_batch()[64].reason
    builder.end_attempt(32, JOB, Outcome.OK)
    assert builder.outcomes()[0] is Outcome.OK


def test_stop_while_slurm_is_unresponsive_may_be_requeue(slurm, builder):
    make_slurm_unresponsive(slurm)
    builder.end_attempt(32, JOB, Outcome.CANCELLED, "received SIGTERM")
    assert builder.outcomes()[0] is Outcome.UNKNOWN
    slurm.set_output("squeue")
    assert builder.outcomes()[0] is Outcome.CANCELLED


def test_record_may_appear_after_job_end(slurm, builder):
    builder.begin_attempt(32, JOB)
    now = int(time.time())
    slurm.set_output("sacct", sacct_line(JOB, "COMPLETED", end=str(now - 4)))
    state = builder.states_by_batch()[32]
    assert state.outcome is Outcome.RUNNING
    assert "its record is not visible yet" in state.reason
    slurm.set_output("sacct", sacct_line(JOB, "COMPLETED", end=str(now - 60)))
    assert builder.states_by_batch()[32].outcome is Outcome.MISSING


# ---- watch ----
