"""Where a cell stands: every rule from SLURM's recorded words, and what is sent again."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpml_jobs.core.cell import CellFile
from hpml_jobs.core.record import Attempt
from hpml_jobs.errors import HpmlError
from hpml_jobs.plan.plan import Plan, make_plan
from hpml_jobs.plan.sweep import expand
from hpml_jobs.slurm.jobs import SACCT_FIELDS, SQUEUE_FORMAT
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.status.logs import log_text
from hpml_jobs.status.states import states
from hpml_jobs.study.attempt import AttemptEnd, utc_now
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.study.cell_state import CellState
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.study.manifest import ManifestEvent, ManifestLine
from hpml_jobs.study.study import Study
from hpml_jobs.submit.selection import select
from tests.unit.builders import a_cell, a_record
from tests.unit.conftest import FakeSlurm
from tests.unit.slurm_output import sacct_line, squeue_line

JOB = "101_0"


@pytest.fixture
def study(slurm: FakeSlurm, working_folder: Path) -> Study:
    """A study of one cell that was sent as job 101_0."""
    made = Study(working_folder / "outputs" / "mine")
    made.create()
    add(made)
    manifest(made, ManifestEvent.SENDING)
    manifest(made, ManifestEvent.SENT, JOB)
    return made


def add(study: Study) -> CellFolder:
    folder = study.cell(a_cell().slug)
    write_whole(folder.cell_json, encode(CellFile(cell=a_cell(), data_root="", code_root="")))
    return folder


def manifest(study: Study, happening: ManifestEvent, *jobs: str, batch: str = "b1") -> None:
    cells = (a_cell().slug,)
    study.append(ManifestLine(happening=happening, batch=batch, cells=cells, jobs=jobs))


def write_record(study: Study, attempt: str = f"{JOB}.r0") -> None:
    write_whole(study.cell(a_cell().slug).record_json, encode(a_record(a_cell(), attempt=attempt)))


def begin(study: Study, job: str = JOB, restart: int = 0) -> Attempt:
    """An attempt that has begun."""
    attempt = Attempt(id=f"{job}.r{restart}", job=job, restart=restart)
    folder = study.cell(a_cell().slug)
    write_whole(folder.attempt(attempt.id).about, encode(attempt))
    write_whole(folder.current, attempt.id.encode())
    return attempt


def end(study: Study, outcome: Outcome, reason: str, job: str = JOB, **more: object) -> None:
    """An attempt whose wrapper said its last words."""
    attempt = begin(study, job)
    last = AttemptEnd(attempt=attempt, outcome=outcome, reason=reason, **more)
    write_whole(study.cell(a_cell().slug).attempt(attempt.id).end, encode(last))


def only(study: Study) -> CellState:
    (state,) = states(study)
    return state


# ---- SLURM's word where there is no record ----


def test_task_cancelled_while_pending_stays_cancelled(slurm: FakeSlurm, study: Study) -> None:
    """A task cancelled before it started is cancelled although SLURM has no row for it."""
    slurm.set_output("sacct", sacct_line("101_1", "RUNNING"))
    assert only(study).outcome is Outcome.CANCELLED
    assert "never started" in only(study).reason
    begin(study)  # it had started, and nobody says how it ended
    assert only(study).outcome is Outcome.MISSING


def test_pending_tasks_are_one_sacct_row(slurm: FakeSlurm, study: Study) -> None:
    slurm.set_output("sacct", sacct_line("101_[0,3%1]", "CANCELLED by 0", node="None assigned"))
    assert only(study).outcome is Outcome.CANCELLED
    assert "CANCELLED by 0" in only(study).reason


def test_sbatch_refusal_is_recorded(slurm: FakeSlurm, working_folder: Path) -> None:
    made = Study(working_folder / "outputs" / "refused")
    made.create()
    add(made)
    manifest(made, ManifestEvent.SENDING)
    line = ManifestLine(
        happening=ManifestEvent.REFUSED, batch="b1", cells=(a_cell().slug,), words="no allocation"
    )
    made.append(line)
    assert only(made).outcome is Outcome.MISSING
    assert only(made).reason == "sbatch refused it: no allocation"


@pytest.mark.parametrize(
    ("told", "outcome", "words"),
    [
        ("OUT_OF_MEMORY|0:0", Outcome.OOM, "OUT_OF_MEMORY, exit code 0:0, job 101_0"),
        ("OUT_OF_MEMORY|0:125", Outcome.OOM, "OUT_OF_MEMORY"),
        ("CANCELLED by 1000|0:15", Outcome.CANCELLED, "CANCELLED by 1000"),
        ("CANCELLED|0:0", Outcome.CANCELLED, "CANCELLED"),
        ("PREEMPTED|0:0", Outcome.PREEMPTED, "PREEMPTED"),
        ("NODE_FAIL|1:0", Outcome.NODE_FAIL, "NODE_FAIL"),
        ("BOOT_FAIL|0:0", Outcome.NODE_FAIL, "BOOT_FAIL"),
        ("TIMEOUT|0:0", Outcome.TIMEOUT, "TIMEOUT"),
        ("DEADLINE|0:0", Outcome.TIMEOUT, "DEADLINE"),
        ("FAILED|1:0", Outcome.FAILED, "FAILED, exit code 1:0"),
        ("COMPLETED|0:0", Outcome.MISSING, "job 101_0 COMPLETED but left no record"),
        ("RUNNING|0:0", Outcome.MISSING, "sacct does not know how it ended"),
        ("HYPERSPACE|0:0", Outcome.UNKNOWN, "HYPERSPACE"),
    ],
)
def test_cell_without_record_follows_sacct(
    slurm: FakeSlurm, study: Study, told: str, outcome: Outcome, words: str
) -> None:
    begin(study)
    answer = sacct_line(JOB, *told.split("|")) + sacct_line("101_1", "COMPLETED", node="gr002")
    slurm.set_output("sacct", answer)
    state = only(study)
    assert state.outcome is outcome
    assert words in state.reason
    assert (state.job, state.recorded) == (JOB, False)
    if not told.startswith("RUNNING"):
        assert (state.node, state.queued_s, state.elapsed_s) == ("gr001", 30, 60)
        assert (state.minutes, state.gpus) == (30, 2)


@pytest.mark.parametrize(
    ("told", "outcome", "reason"),
    [
        ("PENDING|Resources|", Outcome.PENDING, "next in line, until nodes are free (Resources)"),
        ("CONFIGURING|None|gr001", Outcome.PENDING, "CONFIGURING: on gr001, being made ready"),
        ("RUNNING|None|gr001", Outcome.RUNNING, "on gr001"),
        ("COMPLETING|None|gr001", Outcome.RUNNING, "COMPLETING on gr001"),
        (
            "REQUEUED|Priority|",
            Outcome.PENDING,
            "REQUEUED: others have a higher priority (Priority)",
        ),
    ],
)
def test_squeue_outranks_sacct(
    slurm: FakeSlurm, study: Study, told: str, outcome: Outcome, reason: str
) -> None:
    slurm.set_output("squeue", squeue_line(JOB, *told.split("|")))
    slurm.set_output("sacct", sacct_line(JOB, "PREEMPTED"))
    assert (only(study).outcome, only(study).reason) == (outcome, f"{reason}, job 101_0")


def test_slurm_is_queried_once_by_array_id(slurm: FakeSlurm, study: Study) -> None:
    states(study)
    assert slurm.calls("squeue") == [f"-h -r -t all -o {SQUEUE_FORMAT} -j 101"]
    assert slurm.calls("sacct") == [f"-X -P -n -o {SACCT_FIELDS} -j 101"]


def test_user_squeue_format_does_not_change_parsing(
    slurm: FakeSlurm, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SQUEUE_FORMAT", "%j")
    line = squeue_line(JOB, "RUNNING", node="gr001").strip()
    answer = f'#!/bin/sh\n[ -z "$SQUEUE_FORMAT" ] && echo "{line}"\n'
    (slurm.bin / "squeue").write_text(answer)
    assert only(study).outcome is Outcome.RUNNING


def test_job_unknown_to_squeue_is_not_an_error(slurm: FakeSlurm, study: Study) -> None:
    slurm.set_output("squeue", err="slurm_load_jobs error: Invalid job id specified\n", code=1)
    slurm.set_output("sacct", sacct_line(JOB, "TIMEOUT"))
    assert only(study).outcome is Outcome.TIMEOUT
    (state,) = states(study, before_sending=True)
    assert state.outcome is Outcome.TIMEOUT


def test_oom_killer_line_in_log_turns_failed_into_oom(slurm: FakeSlurm, study: Study) -> None:
    slurm.set_output("sacct", sacct_line(JOB, "FAILED", "0:9"))
    (study.slurm / "101_1_0_log.err").write_text("slurmstepd: Exceeded job memory limit\n")
    assert only(study).outcome is Outcome.FAILED  # that was its neighbour
    (study.slurm / f"{JOB}_0_log.err").write_text("slurmstepd: Exceeded job memory limit\n")
    assert only(study).outcome is Outcome.OOM
    assert only(study).reason == (
        "SLURM ended job 101_0: it was over its memory limit; "
        "hpml-jobs resubmit --oom --mem GB asks for more"
    )


def test_rank_error_precedes_slurm_reason(slurm: FakeSlurm, study: Study) -> None:
    slurm.set_output("sacct", sacct_line(JOB, "FAILED", "1:0"))
    end(study, Outcome.FAILED, "rank 1: ValueError: no")
    assert only(study).reason == "rank 1: ValueError: no; FAILED, exit code 1:0, job 101_0"


def test_reason_of_earlier_job_is_not_used(slurm: FakeSlurm, study: Study) -> None:
    slurm.set_output("sacct", sacct_line(JOB, "NODE_FAIL"))
    end(study, Outcome.FAILED, "rank 1: ValueError: no", job="88")
    assert only(study).reason == "NODE_FAIL, exit code 0:0, job 101_0"


# ---- records ----


def test_valid_record_gives_outcome_and_times(slurm: FakeSlurm, study: Study) -> None:
    slurm.set_output("sacct", sacct_line(JOB, "COMPLETED"))
    write_record(study)
    state = only(study)
    assert (state.outcome, state.recorded, state.warning) == (Outcome.OK, True, "")
    assert state.node == "gr001"


@pytest.mark.parametrize("told", ["TIMEOUT", "CANCELLED by 0", "OUT_OF_MEMORY"])
def test_valid_record_with_other_slurm_state_has_warning(
    slurm: FakeSlurm, study: Study, told: str
) -> None:
    slurm.set_output("sacct", sacct_line(JOB, told))
    write_record(study)
    assert (only(study).outcome, only(study).warning) == (Outcome.OK, f"SLURM says {told}")


def test_record_counts_while_its_job_is_completing(slurm: FakeSlurm, study: Study) -> None:
    slurm.set_output("squeue", squeue_line(JOB, "COMPLETING", "None", "gr001"))
    write_record(study)
    assert only(study).outcome is Outcome.OK


def test_pending_rerun_outranks_old_record(slurm: FakeSlurm, study: Study) -> None:
    slurm.set_output("squeue", squeue_line(JOB, "RUNNING", "None", "gr001"))
    write_record(study, attempt="88.r0")
    assert only(study).outcome is Outcome.RUNNING


def test_corrupt_record_is_invalid_with_position(slurm: FakeSlurm, study: Study) -> None:
    slurm.set_output("sacct", sacct_line(JOB, "COMPLETED"))
    text = encode(a_record(a_cell()))
    study.cell(a_cell().slug).record_json.write_bytes(text[:400])
    assert only(study).outcome is Outcome.INVALID
    assert "is not a whole record" in only(study).reason
    study.cell(a_cell().slug).record_json.write_bytes(text.replace(b'"gpus": 4', b'"gpus": 0'))
    assert only(study).outcome is Outcome.INVALID
    assert "gpus=0" in only(study).reason


# ---- SLURM that does not answer ----


def test_attempt_exit_report_counts_without_accounting(slurm: FakeSlurm, study: Study) -> None:
    slurm.set_output("sacct", err="Slurm accounting storage is disabled\n", code=1)
    state = only(study)
    assert state.outcome is Outcome.MISSING  # squeue answers: it is over
    assert state.reason == (
        "job 101_0 is over and left no record or last words; "
        "sacct: Slurm accounting storage is disabled"
    )
    end(study, Outcome.FAILED, "rank 1: ValueError: no")
    assert (only(study).outcome, only(study).reason) == (Outcome.FAILED, "rank 1: ValueError: no")
    write_record(study)
    assert only(study).outcome is Outcome.OK


@pytest.mark.parametrize("silence", ["fails", "absent"])
def test_failing_squeue_is_shown_and_blocks_submission(
    slurm: FakeSlurm, study: Study, silence: str
) -> None:
    if silence == "fails":
        slurm.set_output(
            "squeue", err="slurm_load_jobs error: Unable to contact controller\n", code=1
        )
    else:
        slurm.remove_command("squeue")
    assert only(study).outcome is Outcome.UNKNOWN
    assert "squeue" in only(study).reason
    with pytest.raises(HpmlError, match=r"squeue: .*which cells are under way is not known; try"):
        states(study, before_sending=True)


def test_job_unknown_to_slurm_is_missing(slurm: FakeSlurm, study: Study) -> None:
    assert only(study).outcome is Outcome.MISSING
    assert "sacct does not know how it ended" in only(study).reason


# ---- cells without a manifest line ----


@pytest.fixture
def unsent(slurm: FakeSlurm, working_folder: Path) -> Study:
    """A study whose cell has no manifest line."""
    made = Study(working_folder / "outputs" / "mine")
    made.create()
    add(made)
    return made


def test_cell_never_sent_is_missing(slurm: FakeSlurm, unsent: Study) -> None:
    assert (only(unsent).outcome, only(unsent).reason) == (Outcome.MISSING, "not sent yet")
    assert slurm.calls("squeue") == []


def test_cell_being_sent_is_pending(slurm: FakeSlurm, unsent: Study) -> None:
    manifest(unsent, ManifestEvent.SENDING)
    assert (only(unsent).outcome, only(unsent).reason) == (Outcome.PENDING, "being sent")
    slurm.set_output("squeue", err="slurm_load_jobs error: Unable to contact\n", code=1)
    assert only(unsent).outcome is Outcome.UNKNOWN
    assert "its answer is lost; squeue: slurm_load_jobs" in only(unsent).reason
    manifest(unsent, ManifestEvent.REFUSED)
    assert only(unsent).outcome is Outcome.MISSING


def test_sender_killed_before_sbatch_leaves_cell_missing(slurm: FakeSlurm, unsent: Study) -> None:
    manifest(unsent, ManifestEvent.SENDING)
    text = unsent.manifest.read_text()
    unsent.manifest.write_text(text.replace(f'"time":"{utc_now()[:4]}', '"time":"2020'))
    assert only(unsent).outcome is Outcome.MISSING
    assert "not sent: sbatch was interrupted" in only(unsent).reason


def test_lost_job_id_is_recovered_from_its_log_path(slurm: FakeSlurm, unsent: Study) -> None:
    manifest(unsent, ManifestEvent.SENDING)
    slurm.set_output("squeue", squeue_line("55", "PENDING", "Priority"))
    slurm.set_output("scontrol", "   StdOut=/somewhere/else/55_0_log.out\n")
    slurm.set_output("squeue", "55\n")
    assert only(unsent).outcome is Outcome.PENDING
    assert only(unsent).job is None
    slurm.set_output("scontrol", f"   StdOut={unsent.slurm}/55_0_log.out\n")
    assert only(unsent).job == "55"
    assert [line.happening for line in unsent.lines()] == [
        ManifestEvent.SENDING,
        ManifestEvent.SENT,
    ]
    slurm.set_output("squeue", squeue_line("55", "PENDING", "Priority"))
    assert (only(unsent).outcome, only(unsent).job) == (Outcome.PENDING, "55")


def test_job_submitted_by_hand_is_found_by_its_attempt(slurm: FakeSlurm, unsent: Study) -> None:
    begin(unsent, job="77")
    slurm.set_output("squeue", squeue_line("77", "RUNNING", node="gr002"))
    assert (only(unsent).outcome, only(unsent).job) == (Outcome.RUNNING, "77")
    slurm.set_output("squeue")
    slurm.set_output("sacct", sacct_line("77", "TIMEOUT"))
    assert only(unsent).outcome is Outcome.TIMEOUT
    write_record(unsent, attempt="77.r0")
    assert (only(unsent).outcome, only(unsent).recorded) == (Outcome.OK, True)


# ---- cells of a run on this machine ----


@pytest.fixture
def alive() -> Callable[[], str]:
    """A living process of our program: the job that is named after it."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "hpml_jobs"])
    yield lambda: f"local-{process.pid}-1700000000"
    process.kill()
    process.wait()


def test_local_cell_runs_while_its_process_lives(
    slurm: FakeSlurm, unsent: Study, alive: Callable[[], str]
) -> None:
    manifest(unsent, ManifestEvent.SENT, alive())
    assert only(unsent).outcome is Outcome.PENDING
    begin(unsent, job=alive())
    assert only(unsent).outcome is Outcome.RUNNING
    end(unsent, Outcome.FAILED, "rank 0: no", job=alive())
    assert (only(unsent).outcome, only(unsent).reason) == (Outcome.FAILED, "rank 0: no")
    assert slurm.calls("squeue") == []


def test_local_run_with_ended_process_is_cancelled(unsent: Study) -> None:
    manifest(unsent, ManifestEvent.SENT, "local-999999999-1700000000")
    begin(unsent, job="local-999999999-1700000000")
    assert only(unsent).outcome is Outcome.CANCELLED
    assert "the run on this machine was stopped" in only(unsent).reason


def test_process_id_reused_by_other_program_is_not_our_run(unsent: Study) -> None:
    with subprocess.Popen(["sh", "-c", "read line"], stdin=subprocess.PIPE) as other:
        manifest(unsent, ManifestEvent.SENT, f"local-{other.pid}-1700000000")
        assert only(unsent).outcome is Outcome.CANCELLED
        other.kill()


# ---- logs ----


def test_logs_show_traceback_of_first_failing_rank(study: Study) -> None:
    end(study, Outcome.FAILED, "rank 1: no", rank=1, traceback="Traceback …\nValueError: no")
    shown = log_text(study, only(study), 20)
    assert shown == "rank 1 failed first:\nTraceback …\nValueError: no"


def test_logs_without_traceback_show_end_of_both_logs(study: Study) -> None:
    begin(study)
    attempt = study.cell(a_cell().slug).attempt(f"{JOB}.r0")
    attempt.log_of(0).write_text("\n".join(f"line {number}" for number in range(100)))
    (study.slurm / f"{JOB}_0_log.err").write_text("slurmstepd: CANCELLED DUE TO TIME LIMIT\n")
    shown = log_text(study, only(study), 2)
    assert "line 98\nline 99" in shown
    assert "line 97" not in shown
    assert "DUE TO TIME LIMIT" in shown


def test_logs_missing_is_reported(study: Study) -> None:
    assert log_text(study, only(study), 20) == "no log was written"


# ---- what is sent again ----


def plan(*words: str) -> Plan:
    """A plan whose only cell is the study's."""
    asked = ["gpus=4", "batch=512", "device=cpu", "study=mine", "workload=digits", *words]
    return make_plan(expand(asked, multirun=False), say=lambda _: None)


@pytest.fixture
def planned(slurm: FakeSlurm, working_folder: Path) -> tuple[Plan, CellFolder]:
    """A plan of one cell that was sent as job 101_0."""
    made = plan()
    made.study.create()
    (one,) = made.cells
    folder = made.study.cell(one.cell.slug)
    write_whole(folder.cell_json, encode(one.file))
    made.study.append(
        ManifestLine(happening=ManifestEvent.SENT, batch="b1", cells=(folder.slug,), jobs=(JOB,))
    )
    return made, folder


def test_selection_of_new_study_is_everything(slurm: FakeSlurm) -> None:
    chosen = select(plan())
    assert list(chosen.because.values()) == ["new"]
    assert (len(chosen.send), chosen.left_out) == (1, {})


@pytest.mark.parametrize("told", ["PENDING|Resources|", "RUNNING|None|gr001"])
@pytest.mark.parametrize("words", [[], ["rerun=true"]])
def test_selection_for_rerun_omits_pending_and_running(
    slurm: FakeSlurm, planned: tuple[Plan, CellFolder], told: str, words: list[str]
) -> None:
    slurm.set_output("squeue", squeue_line(JOB, *told.split("|")))
    chosen = select(plan(*words))
    assert chosen.send == []
    assert [state.job for state in chosen.left_out.values()] == [JOB]


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.OOM])
def test_selection_omits_finished_and_oom_cells(
    slurm: FakeSlurm, planned: tuple[Plan, CellFolder], outcome: Outcome
) -> None:
    _, folder = planned
    left = a_record(folder.read().cell, outcome=outcome, reason="rank 0: out of memory")
    write_whole(folder.record_json, encode(left))
    assert select(plan()).send == []
    again = select(plan("rerun=true"))
    assert again.because == {folder.slug: "again (rerun=true)"}
    assert again.send[0].file.supersedes == f"{JOB}.r0"


@pytest.mark.parametrize("told", ["FAILED", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "COMPLETED"])
def test_selection_has_cells_without_record_and_reason(
    slurm: FakeSlurm, planned: tuple[Plan, CellFolder], told: str
) -> None:
    slurm.set_output("sacct", sacct_line(JOB, told))
    word = {"COMPLETED": "missing"}.get(told, told.lower())
    assert list(select(plan()).because.values()) == [f"{word} before"]


def test_selection_has_cells_with_corrupt_record(
    slurm: FakeSlurm, planned: tuple[Plan, CellFolder]
) -> None:
    _, folder = planned
    folder.record_json.write_bytes(b'{"schema": 1, "cel')
    for words in ([], ["rerun=true"]):
        chosen = select(plan(*words))
        assert chosen.because == {folder.slug: "invalid before"}
        assert chosen.send[0].file.supersedes is None


def test_selection_while_squeue_fails_is_refused(
    slurm: FakeSlurm, planned: tuple[Plan, CellFolder]
) -> None:
    slurm.set_output("squeue", err="Unable to contact slurm controller", code=1)
    with pytest.raises(HpmlError, match=r"which cells are under way is not known"):
        select(plan())
