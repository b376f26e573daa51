"""SLURM without accounting, SLURM that does not answer, and slow files."""

import os
import time

import pytest

from hpml_jobs.core.cell import Outcome
from hpml_jobs.status import watch as watching
from hpml_jobs.status.query import SACCT_IDS, read_answers
from hpml_jobs.status.states import study_status
from hpml_jobs.status.watch import watch_study
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


def test_missing_squeue_differs_from_unresponsive_one(slurm, builder):
    assert not study_status(builder.study).complaint
    make_slurm_unresponsive(slurm)
    assert study_status(builder.study).complaint
    slurm.remove_command("squeue")
    status = study_status(builder.study)
    assert (status.slurm.no_squeue, bool(status.slurm.no_queue)) == (True, True)
    assert not status.complaint


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
    assert (
        "ended without a record or an exit report (last known state: running)" in reason
    )
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


def test_cache_is_written_only_on_change(slurm, builder):
    slurm.set_output("squeue", squeue_line(JOB, "PENDING", "Priority"))
    builder.states_by_batch()
    path = builder.study.root / "seen.json"
    first = path.stat().st_ino
    slurm.set_output("squeue", squeue_line(JOB, "PENDING", "Resources"))
    builder.states_by_batch()
    assert path.stat().st_ino == first  # a whole new file would be another one
    slurm.set_output("squeue", squeue_line(JOB, "RUNNING", node="gr001"))
    builder.states_by_batch()
    assert path.stat().st_ino != first


@pytest.mark.parametrize("content", ["", "{", '{"17_0": 3}'])
def test_unreadable_cache_is_ignored(slurm, builder, content):
    (builder.study.root / "seen.json").write_text(content)
    make_slurm_unresponsive(slurm)
    assert builder.outcomes()[0] is Outcome.UNKNOWN
    assert "(running then)" not in builder.states_by_batch()[32].reason


def test_unwritable_cache_is_ignored(slurm, builder):
    (builder.study.root / "seen.json").mkdir()  # for root too, who may write anywhere
    slurm.set_output("squeue", squeue_line(JOB, "RUNNING", node="gr001"))
    assert builder.outcomes()[0] is Outcome.RUNNING


def test_record_may_appear_after_job_end(slurm, builder):
    builder.begin_attempt(32, JOB)
    now = int(time.time())
    slurm.set_output("sacct", sacct_line(JOB, "COMPLETED", end=str(now - 4)))
    state = builder.states_by_batch()[32]
    assert state.outcome is Outcome.RUNNING
    assert "its record is not visible yet" in state.reason
    slurm.set_output("sacct", sacct_line(JOB, "COMPLETED", end=str(now - 60)))
    assert builder.states_by_batch()[32].outcome is Outcome.MISSING


def test_sacct_running_is_overridden_by_squeue(slurm, builder):
    # an end that never reached the database
    slurm.set_output("sacct", sacct_line(JOB, "RUNNING"))
    builder.begin_attempt(32, JOB)
    assert builder.outcomes()[0] is Outcome.MISSING


def test_requeued_job_shows_current_state_and_restarts(slurm, builder):
    builder.begin_attempt(32, JOB)
    slurm.set_output("squeue", squeue_line(JOB, "PENDING", "BeginTime"))
    slurm.set_output("sacct", sacct_line(JOB, "PREEMPTED"))
    assert builder.outcomes()[0] is Outcome.PENDING
    builder.begin_attempt(32, JOB, restart=2)
    slurm.set_output("squeue", squeue_line(JOB, "RUNNING", node="gr002"))
    assert (
        builder.states_by_batch()[32].outcome,
        builder.states_by_batch()[32].restarts,
    ) == (
        Outcome.RUNNING,
        2,
    )


def test_pending_cell_names_who_must_act(slurm, builder):
    slurm.set_output("squeue", squeue_line(JOB, "PENDING", "BadConstraints"))
    state = builder.states_by_batch()[32]
    assert (state.outcome, state.who) == (Outcome.PENDING, "you")


def test_many_arrays_need_one_squeue_and_few_sacct_calls(slurm, working_folder):
    builder = StudyBuilder(working_folder / "outputs" / "mine").with_batches(
        *range(1, SACCT_IDS + 3)
    )
    builder.sent_as(*(f"{cell.batch}_0" for cell in builder.cells))
    study_status(builder.study)
    assert len(slurm.calls("squeue")) == 1
    assert [
        len(words.split(",")) for words in (w.split()[-1] for w in slurm.calls("sacct"))
    ] == [
        SACCT_IDS,
        2,
    ]


def test_failing_sacct_is_not_called_again(slurm, working_folder):
    builder = StudyBuilder(working_folder / "outputs" / "mine").with_batches(
        *range(1, SACCT_IDS + 3)
    )
    builder.sent_as(*(f"{cell.batch}_0" for cell in builder.cells))
    disable_accounting(slurm)
    status = study_status(builder.study)
    assert len(slurm.calls("sacct")) == 1
    assert "disabled" in status.slurm.no_accounts


# ---- watch ----


def test_watch_ends_when_nothing_is_pending_or_running(slurm, builder):
    slurm.set_output("sacct", sacct_line(JOB, "FAILED") + sacct_line("17_1", "TIMEOUT"))
    shown = []
    watch_study(builder.study, 0.01, lambda now, _: shown.append(now))
    assert [[state.outcome.value for state in now] for now in shown] == [
        ["failed", "timeout"]
    ]


def test_watch_backs_off_while_slurm_is_unresponsive(slurm, builder, monkeypatch):
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 5:
            slurm.set_output("squeue")
            slurm.set_output(
                "sacct", sacct_line(JOB, "FAILED") + sacct_line("17_1", "FAILED")
            )

    monkeypatch.setattr(watching, "sleep", pause)
    make_slurm_unresponsive(slurm)
    notes = []
    watch_study(builder.study, 5.0, lambda _, note: notes.append(note))
    assert pauses == [10, 20, 40, 60, 60]
    assert notes[0].startswith("SLURM does not answer (squeue: slurm_load_jobs error")
    assert notes[-1] == ""


def test_watch_without_squeue_ends_at_once(slurm, builder):
    slurm.remove_command("squeue")
    shown = []
    watch_study(builder.study, 0.01, lambda now, _: shown.append(now[0].outcome.value))
    assert shown == ["unknown"]
