"""States of cells by every rule, from recorded SLURM output; and which cells are resubmitted."""

import json
import os
import subprocess
import time
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.process_times import Process
from hpml_jobs.status.query import UNNAMED
from hpml_jobs.status.states import status_for_submission
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.study.manifest import ManifestEvent, ManifestLine
from hpml_jobs.submit.selection import select
from tests.unit.builders import a_cell, a_record
from tests.unit.plans import plan_of
from tests.unit.slurm_output import sacct_line, squeue_line
from tests.unit.study_builder import StudyBuilder, write_record

JOB = "101_0"
BATCH = 512
"""The batch of the only cell, which names it for its builder."""


@pytest.fixture
def builder(slurm, working_folder):
    """A study of one cell that was submitted as job 101_0."""
    builder = StudyBuilder(working_folder / "outputs" / "mine").with_cell(a_cell())
    return builder.with_event(ManifestEvent.SENDING).sent_as(JOB)


# ---- SLURM's word where there is no record ----


def test_task_cancelled_while_pending_stays_cancelled(slurm, builder):
    """A task cancelled before it started is cancelled although SLURM has no row for it."""
    slurm.set_output("sacct", sacct_line("101_1", "RUNNING"))
    assert builder.state.outcome is Outcome.CANCELLED
    assert "never started" in builder.state.reason
    builder.begin_attempt(BATCH, JOB)  # it had started, and nobody says how it ended
    assert builder.state.outcome is Outcome.MISSING


@pytest.mark.parametrize(
    ("source", "state"), [("squeue", "RUNNING"), ("sacct", "FAILED")]
)
def test_job_of_another_name_is_not_the_cells(slurm, builder, source, state):
    """The numbers began anew, or the study is a copy from another cluster."""
    slugs = tuple(cell.slug for cell in builder.cells)
    sent = ManifestLine(
        happening=ManifestEvent.SENT, batch="b2", cells=slugs, jobs=(JOB,)
    )
    builder.study.append(msgspec.structs.replace(sent, name="hpml-mine"))
    make_line = squeue_line if source == "squeue" else sacct_line
    slurm.set_output(source, make_line(JOB, state, node="gr001", name="hpml-mine"))
    assert builder.state.outcome.value == state.lower()
    builder.study.slurm_answers.unlink()
    slurm.set_output(source, make_line(JOB, state, node="gr001", name="a|job"))
    assert builder.state.outcome is Outcome.MISSING
    assert (
        f"job {JOB} is another job here (a|job), not this study's: "
        in builder.state.reason
    )
    slurm.set_output("scancel")
    assert run(["cancel", "mine"]) == 0
    assert slurm.calls("scancel") == []
    builder.study.slurm_answers.unlink()
    slurm.set_output(source, make_line(JOB, state, node="gr001", name=UNNAMED))
    # accounting has no name of it yet
    assert builder.state.outcome.value == state.lower()


@pytest.mark.parametrize(
    ("folder", "outcome"), [("", "running"), ("/elsewhere", "missing")]
)
def test_log_of_a_job_says_whose_it_is(slurm, builder, folder, outcome):
    """Or another study of this name has a job of this number, days later."""
    slugs = tuple(cell.slug for cell in builder.cells)
    sent = ManifestLine(
        happening=ManifestEvent.SENT, batch="b2", cells=slugs, jobs=(JOB,)
    )
    builder.study.append(msgspec.structs.replace(sent, name="hpml-mine"))
    slurm.set_output(
        "squeue", squeue_line(JOB, "RUNNING", node="gr001", name="hpml-mine")
    )
    path = f"{folder or builder.study.slurm}/101_0_log.out"
    slurm.set_output("scontrol", f"   StdOut={path}\n")
    assert builder.state.outcome.value == outcome


def test_pending_tasks_are_one_sacct_row(slurm, builder):
    slurm.set_output(
        "sacct", sacct_line("101_[0,3%1]", "CANCELLED by 0", node="None assigned")
    )
    assert builder.state.outcome is Outcome.CANCELLED
    assert "CANCELLED by 0" in builder.state.reason


@pytest.mark.parametrize(
    ("job_state", "outcome", "words"),
    [
        ("OUT_OF_MEMORY|0:0", Outcome.OOM, "OUT_OF_MEMORY, exit code 0:0, job 101_0"),
        ("CANCELLED by 1000|0:15", Outcome.CANCELLED, "CANCELLED by 1000"),
        ("PREEMPTED|0:0", Outcome.PREEMPTED, "PREEMPTED"),
        ("NODE_FAIL|1:0", Outcome.NODE_FAIL, "NODE_FAIL"),
        ("TIMEOUT|0:0", Outcome.TIMEOUT, "TIMEOUT"),
        ("FAILED|1:0", Outcome.FAILED, "FAILED, exit code 1:0"),
        ("COMPLETED|0:0", Outcome.MISSING, "job 101_0 COMPLETED without a record"),
        ("RUNNING|0:0", Outcome.MISSING, "sacct does not report how it ended"),
        ("HYPERSPACE|0:0", Outcome.UNKNOWN, "HYPERSPACE"),
    ],
)
def test_cell_without_record_follows_sacct(slurm, builder, job_state, outcome, words):
    builder.begin_attempt(BATCH, JOB)
    answer = sacct_line(JOB, *job_state.split("|")) + sacct_line(
        "101_1", "COMPLETED", node="gr002"
    )
    slurm.set_output("sacct", answer)
    state = builder.state
    assert state.outcome is outcome
    assert words in state.reason
    assert (state.job, state.recorded) == (JOB, False)
    if not job_state.startswith("RUNNING"):
        assert (state.node, state.queued_s, state.elapsed_s) == ("gr001", 30, 60)
        assert (state.minutes, state.gpus) == (30, 2)


@pytest.mark.parametrize(
    ("job_state", "outcome", "reason"),
    [
        (
            "PENDING|Resources|",
            Outcome.PENDING,
            "next in the queue, until nodes are free (Resources)",
        ),
        ("RUNNING|None|gr001", Outcome.RUNNING, "on gr001"),
        (
            "REQUEUED|Priority|",
            Outcome.PENDING,
            "REQUEUED: jobs with a higher priority come first (Priority)",
        ),
    ],
)
def test_squeue_outranks_sacct(slurm, builder, job_state, outcome, reason):
    slurm.set_output("squeue", squeue_line(JOB, *job_state.split("|")))
    slurm.set_output("sacct", sacct_line(JOB, "PREEMPTED"))
    assert (builder.state.outcome, builder.state.reason) == (
        outcome,
        f"{reason}, job 101_0",
    )


def test_job_unknown_to_squeue_is_not_an_error(slurm, builder):
    slurm.set_output(
        "squeue", err="slurm_load_jobs error: Invalid job id specified\n", code=1
    )
    slurm.set_output("sacct", sacct_line(JOB, "TIMEOUT"))
    assert builder.state.outcome is Outcome.TIMEOUT
    (state,) = status_for_submission(builder.study).states
    assert state.outcome is Outcome.TIMEOUT


def test_oom_killer_line_in_log_turns_failed_into_oom(slurm, builder):
    slurm.set_output("sacct", sacct_line(JOB, "FAILED", "0:9"))
    (builder.study.slurm / "101_1_0_log.err").write_text(
        "slurmstepd: Exceeded job memory limit\n"
    )
    assert builder.state.outcome is Outcome.FAILED  # that was its neighbour
    (builder.study.slurm / f"{JOB}_0_log.err").write_text(
        "slurmstepd: Exceeded job memory limit\n"
    )
    assert builder.state.outcome is Outcome.OOM
    assert builder.state.reason == "SLURM ended job 101_0: memory limit exceeded"


@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.parametrize(
    ("node", "avoided"), [("gr002", "gr002"), (None, "gr[001-002]")]
)
def test_fault_of_hardware_avoids_the_node(slurm, builder, answers, node, avoided):
    """SLURM says FAILED, or nothing; the exit report says that it was the node."""
    line = sacct_line(JOB, "FAILED", "1:0", node="gr[001-002]")
    slurm.set_output("sacct", line if answers else "", code=0 if answers else 1)
    reason = "rank 3: RuntimeError: CUDA error: uncorrectable ECC error encountered"
    builder.end_attempt(BATCH, JOB, Outcome.NODE_FAIL, reason, node=node)
    state = builder.state
    assert state.outcome is Outcome.NODE_FAIL
    assert state.reason.startswith(reason)
    if answers or node:
        assert state.node == avoided


def test_reason_of_earlier_job_is_not_used(slurm, builder):
    slurm.set_output("sacct", sacct_line(JOB, "NODE_FAIL"))
    builder.end_attempt(BATCH, "88", Outcome.FAILED, "rank 1: ValueError: no")
    assert builder.state.reason == "NODE_FAIL, exit code 0:0, job 101_0"


# ---- records ----


def test_job_that_was_suspended_says_so_with_its_seconds(slurm, builder, capsys):
    slurm.set_output("sacct", sacct_line(JOB, "COMPLETED", suspended="00:00:20"))
    builder.publish_record(BATCH, f"{JOB}.r0")
    assert builder.state.warning == "SLURM suspended its job for 20 s"
    slurm.set_output(
        "squeue", err="slurm_load_jobs error: Invalid job id specified", code=1
    )
    slurm.set_output("sacct", err="down", code=1)  # the last answer is cached
    assert builder.state.warning == "SLURM suspended its job for 20 s"


@pytest.mark.parametrize("job_state", ["TIMEOUT", "CANCELLED by 0", "OUT_OF_MEMORY"])
def test_valid_record_with_other_job_state_has_warning(slurm, builder, job_state):
    slurm.set_output("sacct", sacct_line(JOB, job_state))
    builder.publish_record(BATCH, f"{JOB}.r0")
    assert (builder.state.outcome, builder.state.warning) == (
        Outcome.OK,
        f"SLURM's state is {job_state}",
    )


def test_record_counts_while_its_job_is_completing(slurm, builder):
    slurm.set_output("squeue", squeue_line(JOB, "COMPLETING", "None", "gr001"))
    builder.publish_record(BATCH, f"{JOB}.r0")
    assert builder.state.outcome is Outcome.OK


def test_pending_rerun_outranks_old_record(slurm, builder):
    slurm.set_output("squeue", squeue_line(JOB, "RUNNING", "None", "gr001"))
    builder.publish_record(BATCH, "88.r0")
    assert builder.state.outcome is Outcome.RUNNING


# ---- SLURM that does not answer ----


def test_attempt_exit_report_counts_without_accounting(slurm, builder):
    slurm.set_output("sacct", err="Slurm accounting storage is disabled\n", code=1)
    state = builder.state
    assert state.outcome is Outcome.MISSING  # squeue answers: it is over
    assert state.reason == (
        "job 101_0 ended without a record or an exit report; "
        "sacct: Slurm accounting storage is disabled"
    )
    builder.end_attempt(BATCH, JOB, Outcome.FAILED, "rank 1: ValueError: no")
    assert (builder.state.outcome, builder.state.reason) == (
        Outcome.FAILED,
        "rank 1: ValueError: no",
    )
    builder.publish_record(BATCH, f"{JOB}.r0")
    assert builder.state.outcome is Outcome.OK


@pytest.mark.parametrize("silence", ["fails", "absent"])
def test_failing_squeue_is_shown_and_blocks_submission(slurm, builder, silence):
    if silence == "fails":
        slurm.set_output(
            "squeue",
            err="slurm_load_jobs error: Unable to contact controller\n",
            code=1,
        )
    else:
        slurm.remove_command("squeue")
    assert builder.state.outcome is Outcome.UNKNOWN
    assert "squeue" in builder.state.reason
    with pytest.raises(
        HpmlError, match=r"squeue: .*it is unknown which cells have a job; try"
    ):
        status_for_submission(builder.study)


# ---- cells without a manifest line ----


@pytest.fixture
def unsent_study(slurm, working_folder):
    """A study whose cell has no manifest line."""
    return StudyBuilder(working_folder / "outputs" / "mine").with_cell(a_cell())


def test_cell_never_sent_is_missing(slurm, unsent_study):
    assert (unsent_study.state.outcome, unsent_study.state.reason) == (
        Outcome.MISSING,
        "not submitted yet",
    )
    assert slurm.calls("squeue") == []


def test_cell_being_sent_is_pending(slurm, unsent_study):
    unsent_study.with_event(ManifestEvent.SENDING)
    assert (unsent_study.state.outcome, unsent_study.state.reason) == (
        Outcome.PENDING,
        "being submitted",
    )
    slurm.set_output("squeue", err="slurm_load_jobs error: Unable to contact\n", code=1)
    assert unsent_study.state.outcome is Outcome.UNKNOWN
    assert "its answer is lost; squeue: slurm_load_jobs" in unsent_study.state.reason
    unsent_study.with_event(ManifestEvent.REFUSED)
    assert unsent_study.state.outcome is Outcome.MISSING


HERE = Process.of(os.getpid())
ELSEWHERE = msgspec.structs.replace(HERE, host="login2")


@pytest.mark.parametrize(
    ("sbatch", "minutes", "expected"),
    [
        (
            HERE,
            10,
            ("pending", f"sbatch (PID {HERE.pid}) has waited for SLURM for 10 min"),
        ),
        (
            ELSEWHERE,
            10,
            ("unknown", f"may still be running (PID {HERE.pid} on login2)"),
        ),
        (ELSEWHERE, 61, ("missing", "sbatch was interrupted")),
        (
            msgspec.structs.replace(HERE, started_ticks=1),
            10,
            ("missing", "was interrupted"),
        ),
    ],
)
def test_sbatch_is_dead_only_when_it_is(slurm, unsent_study, sbatch, minutes, expected):
    unsent_study.with_event(ManifestEvent.SENDING, sbatch=sbatch)
    manifest = unsent_study.study.manifest
    line = json.loads(manifest.read_text())
    line["time"] = (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat()
    manifest.write_text(json.dumps(line) + "\n")
    outcome, reason = expected
    assert (unsent_study.state.outcome, reason in unsent_study.state.reason) == (
        outcome,
        True,
    )


@pytest.mark.parametrize(
    ("queue", "accounts", "job"),
    [
        ("55|/other/slurm/b2.sh\n", "56|sbatch /other/slurm/xb1.sh|\n", None),
        ("55|/mine/slurm/b1.sh\n", "", "55"),
        ("", "55_[0-1%1]|/opt/sbatch --x=1 /mine/slurm/b1.sh --y|\n", "55_0"),
    ],
)
def test_lost_job_is_found_by_its_script(slurm, unsent_study, queue, accounts, job):
    unsent_study.with_event(ManifestEvent.SENDING)
    listed = squeue_line("55", "PENDING") + squeue_line("55_0", "PENDING")
    header = "JOBID|STATE|SUBMIT_TIME|START_TIME|TIME|TIME_LIMIT|NODELIST|REASON|NAME\n"
    slurm.set_answers(
        "squeue", ("%o", f"JOBID|COMMAND\n{queue}"), ("%T", header + listed)
    )
    slurm.set_output("sacct", accounts)
    assert (unsent_study.state.outcome, unsent_study.state.job) == (
        Outcome.PENDING,
        job,
    )
    events = [line.happening for line in unsent_study.study.lines()]
    assert events == [ManifestEvent.SENDING] + [ManifestEvent.SENT] * bool(job)


def test_job_submitted_by_hand_is_found_by_its_attempt(slurm, unsent_study):
    unsent_study.begin_attempt(BATCH, "77")
    slurm.set_output("squeue", squeue_line("77", "RUNNING", node="gr002"))
    assert (unsent_study.state.outcome, unsent_study.state.job) == (
        Outcome.RUNNING,
        "77",
    )
    slurm.set_output("squeue")
    slurm.set_output("sacct", sacct_line("77", "TIMEOUT"))
    assert unsent_study.state.outcome is Outcome.TIMEOUT
    unsent_study.publish_record(BATCH, "77.r0")
    assert (unsent_study.state.outcome, unsent_study.state.recorded) == (
        Outcome.OK,
        True,
    )


# ---- cells of a run on this machine ----


def test_local_cell_runs_while_its_process_lives(slurm, unsent_study, running_process):
    unsent_study.with_event(ManifestEvent.SENT, running_process())
    assert unsent_study.state.outcome is Outcome.PENDING
    unsent_study.begin_attempt(BATCH, running_process())
    assert unsent_study.state.outcome is Outcome.RUNNING
    unsent_study.end_attempt(BATCH, running_process(), Outcome.FAILED, "rank 0: no")
    assert (unsent_study.state.outcome, unsent_study.state.reason) == (
        Outcome.FAILED,
        "rank 0: no",
    )
    assert slurm.calls("squeue") == []


def test_cell_that_is_measured_again_here_is_not_ended(unsent_study, running_process):
    first, again = "local-999999999-1700000000", running_process()
    unsent_study.with_event(ManifestEvent.SENT, first)
    unsent_study.begin_attempt(BATCH, first)
    unsent_study.end_attempt(BATCH, first, Outcome.OK, "")
    assert unsent_study.state.outcome is Outcome.OK
    unsent_study.with_event(ManifestEvent.SENT, again)
    assert unsent_study.state.outcome is Outcome.PENDING
    unsent_study.begin_attempt(BATCH, again)
    assert unsent_study.state.outcome is Outcome.RUNNING
    unsent_study.end_attempt(BATCH, again, Outcome.FAILED, "rank 0: no")
    assert unsent_study.state.outcome is Outcome.OK


def test_local_run_that_ended_well_without_a_record_is_missing(unsent_study):
    unsent_study.with_event(ManifestEvent.SENT, "local-999999999-1700000000")
    unsent_study.begin_attempt(BATCH, "local-999999999-1700000000")
    unsent_study.end_attempt(BATCH, "local-999999999-1700000000", Outcome.OK, "")
    for record in unsent_study.study.root.rglob("record.json"):
        record.unlink()
    assert unsent_study.state.outcome is Outcome.MISSING


def test_local_run_with_ended_process_is_cancelled(unsent_study):
    unsent_study.with_event(ManifestEvent.SENT, "local-999999999-1700000000")
    unsent_study.begin_attempt(BATCH, "local-999999999-1700000000")
    assert unsent_study.state.outcome is Outcome.CANCELLED
    assert "the local run was stopped" in unsent_study.state.reason


def test_process_id_reused_by_other_program_is_not_our_run(unsent_study):
    with subprocess.Popen(["sh", "-c", "read line"], stdin=subprocess.PIPE) as other:
        unsent_study.with_event(
            ManifestEvent.SENT, f"local-{other.pid}-{int(time.time()) + 1}"
        )
        assert unsent_study.state.outcome is Outcome.CANCELLED
        other.kill()


# ---- logs ----


# ---- what is sent again ----


def plan_of_cell(*words):
    """A plan whose only cell is the study's."""
    return plan_of("gpus=4", "batch=512", "device=cpu", "study=mine", *words)


@pytest.fixture
def planned_study(slurm, working_folder):
    """A plan of one cell that was submitted as job 101_0."""
    made = plan_of_cell()
    made.study.create()
    (one,) = made.cells
    folder = made.study.cell(one.cell.slug)
    write_whole(folder.cell_json, encode(one.file))
    made.study.append(
        ManifestLine(
            happening=ManifestEvent.SENT, batch="b1", cells=(folder.slug,), jobs=(JOB,)
        )
    )
    return made, folder


@pytest.mark.parametrize("job_state", ["PENDING|Resources|", "RUNNING|None|gr001"])
@pytest.mark.parametrize("words", [[], ["rerun=true"]])
def test_selection_for_rerun_omits_pending_and_running(
    slurm, planned_study, job_state, words
):
    slurm.set_output("squeue", squeue_line(JOB, *job_state.split("|")))
    chosen = select(plan_of_cell(*words))
    assert chosen.send == []
    assert [state.job for state in chosen.left_out.values()] == [JOB]


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.OOM])
def test_selection_omits_finished_and_oom_cells(slurm, planned_study, outcome):
    _, folder = planned_study
    left = a_record(folder.read().cell, outcome=outcome, reason="rank 0: out of memory")
    write_record(folder, left)
    assert select(plan_of_cell()).send == []
    again = select(plan_of_cell("rerun=true"))
    assert again.reasons == {folder.slug: "again (rerun=true)"}
    assert again.send[0].file.supersedes == f"{JOB}.r0"


@pytest.mark.parametrize("job_state", ["FAILED", "TIMEOUT", "COMPLETED"])
def test_selection_has_cells_without_record_and_reason(slurm, planned_study, job_state):
    slurm.set_output("sacct", sacct_line(JOB, job_state))
    word = {"COMPLETED": "missing"}.get(job_state, job_state.lower())
    assert list(select(plan_of_cell()).reasons.values()) == [f"{word} before"]
