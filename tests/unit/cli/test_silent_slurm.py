"""A SLURM that answers nothing or half: no state is believed without evidence."""

import json
import time

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.status import watch as watching
from hpml_jobs.study.study import Study
from tests.unit.slurm_output import sacct_line, squeue_line

WORDS = (
    "-m",
    "gpus=2",
    "batch=32,64",
    "workload=digits",
    "study=mine",
    "cluster=greene",
)
RUNNING = squeue_line("101_0", "RUNNING", node="gr001") + squeue_line(
    "101_1", "RUNNING", node="gr001"
)


@pytest.fixture
def running_study(slurm, working_folder, capsys):
    """Two cells that run as the array 101."""
    assert run(["submit", *WORDS]) == 0
    slurm.set_output("squeue", RUNNING)
    capsys.readouterr()
    return Study(working_folder / "outputs" / "mine")


def cells(capsys):
    return json.loads(capsys.readouterr().out)["cells"]


def outcomes(capsys):
    capsys.readouterr()
    assert run(["status", "mine", "--json"]) == 0
    return [cell["outcome"] for cell in cells(capsys)]


def make_silent(slurm, fault):
    if fault == "empty":
        slurm.set_complete_output("squeue", "")
    elif fault == "first line":
        slurm.cut_squeue()
        slurm.keep_jobs_in_controller()
    elif fault == "cut":
        slurm.set_complete_output("squeue", f"JOBID|STATE\n{RUNNING[:-20]}")
        slurm.keep_jobs_in_controller()


FAULTS = ["empty", "first line"]


@pytest.mark.parametrize("fault", FAULTS)
def test_silent_squeue_makes_running_cells_unknown(slurm, running_study, capsys, fault):
    make_silent(slurm, fault)
    assert outcomes(capsys) == ["unknown", "unknown"]
    assert run(["status", "mine"]) == 0
    assert "2 unknown" in capsys.readouterr().out


@pytest.mark.parametrize("fault", FAULTS)
def test_silent_squeue_sends_no_second_job(slurm, running_study, capsys, fault):
    make_silent(slurm, fault)
    code = run(["submit", *WORDS])
    printed = capsys.readouterr()
    assert len(slurm.scripts) == 1
    if fault == "first line":
        assert code == 0
        assert "left out: unknown" in printed.out
        assert "running or unknown" in printed.out
    else:
        assert code == 1
        assert "it is unknown which cells have a job; try again later" in printed.err
    run(["resubmit", "mine", "*"])
    assert len(slurm.scripts) == 1


def test_cut_squeue_keeps_listed_cells_and_doubts_others(slurm, running_study, capsys):
    make_silent(slurm, "cut")
    assert sorted(outcomes(capsys)) == ["running", "unknown"]
    assert run(["resubmit", "mine", "*"]) == 0
    assert "squeue does not list the job; scontrol does" in capsys.readouterr().err
    assert len(slurm.scripts) == 1


def test_job_unknown_to_controller_is_missing_and_resent(slurm, running_study, capsys):
    slurm.set_output("squeue")
    slurm.set_output("sacct", err="Slurm accounting storage is disabled\n", code=1)
    assert outcomes(capsys) == ["missing", "missing"]
    asked = len(slurm.calls("scontrol"))
    assert outcomes(capsys) == ["missing", "missing"]
    assert len(slurm.calls("scontrol")) == asked  # the answer is kept
    assert run(["submit", *WORDS]) == 0
    assert len(slurm.scripts) == 2


@pytest.mark.parametrize("state", ["PREEMPTED", "NODE_FAIL"])
def test_preempted_job_may_be_requeued_while_squeue_is_cut(
    slurm, running_study, capsys, state
):
    slurm.set_output("sacct", sacct_line("101_0", state) + sacct_line("101_1", state))
    slurm.cut_squeue()
    slurm.keep_jobs_in_controller()
    assert outcomes(capsys) == ["unknown", "unknown"]
    slurm.set_output("squeue")
    (slurm.folder / "scontrol.job").unlink()
    assert outcomes(capsys) == [state.lower()] * 2


@pytest.mark.parametrize("name", ["squeue", "sacct"])
def test_endless_output_is_bounded(slurm, running_study, capsys, monkeypatch, name):
    monkeypatch.setattr("hpml_jobs.slurm.commands.ANSWER_BYTES", 100_000)
    slurm.print_forever(name)
    expected = {"squeue": ["unknown"] * 2, "sacct": ["running"] * 2}[name]
    assert outcomes(capsys) == expected
    if name == "squeue":
        assert run(["status", "mine"]) == 0
        assert "printed more than 0 MB" in capsys.readouterr().out


@pytest.mark.usefixtures("running_study")
@pytest.mark.parametrize(
    "words", [["collect", "mine", "--wait"], ["status", "mine", "--watch"]]
)
@pytest.mark.parametrize("fault", FAULTS)
def test_waiting_goes_on_while_squeue_is_silent(
    slurm, capsys, monkeypatch, words, fault
):
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            slurm.set_output("squeue")
            (slurm.folder / "scontrol.job").unlink(missing_ok=True)
            slurm.set_output(
                "sacct", sacct_line("101_0", "FAILED") + sacct_line("101_1", "FAILED")
            )

    monkeypatch.setattr(watching, "sleep", pause)
    make_silent(slurm, fault)
    assert run(words) == 0
    assert pauses == [10, 20, 40]
    shown = capsys.readouterr()
    assert "SLURM does not answer (squeue" in shown.out + shown.err


def test_lost_sbatch_answer_with_empty_squeue_is_unknown(slurm, running_study, capsys):
    lines = running_study.manifest.read_text().splitlines(keepends=True)
    old = time.strftime("%Y")
    running_study.manifest.write_text(
        lines[0].replace(f'"time":"{old}', '"time":"2020')
    )
    slurm.set_complete_output("squeue", "")
    assert outcomes(capsys) == ["unknown", "unknown"]
    for words in (["submit", *WORDS], ["resubmit", "mine", "--missing"]):
        assert run(words) == 1
        assert "unknown which cells have a job; try again" in capsys.readouterr().err
    assert len(slurm.scripts) == 1
    assert run(["cancel", "mine"]) == 1
    assert " was not cancelled: sbatch was called, but" in capsys.readouterr().err
    slurm.set_output("squeue")
    slurm.set_output("sacct", err="sacct: error: Connection refused", code=1)
    assert outcomes(capsys) == ["unknown", "unknown"]
    slurm.set_output("sacct", err="Slurm accounting storage is disabled", code=1)
    assert outcomes(capsys) == ["missing", "missing"]


@pytest.mark.usefixtures("running_study")
def test_cancel_while_squeue_is_silent_uses_job_ids(slurm, capsys):
    slurm.set_output("scancel")
    make_silent(slurm, "empty")
    assert run(["cancel", "mine"]) == 0
    assert sorted(slurm.calls("scancel")[0].split()) == ["101_0", "101_1"]
    assert "cancelled 2 jobs" in capsys.readouterr().out
