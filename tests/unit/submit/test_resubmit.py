"""Cells sent again from what the study keeps; what comes after all; ending jobs by id."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.status.cancel import active_jobs
from hpml_jobs.study.snapshot import CellState
from hpml_jobs.study.study import Study
from tests.unit.builders import a_record
from tests.unit.check_cases import change_scheduling
from tests.unit.slurm_output import sacct_line
from tests.unit.study_builder import write_record

WORDS = ("gpus=2", "workload=digits", "study=mine", "cluster=greene")


def sbatch_lines(text):
    return {line[10:] for line in text.splitlines() if line.startswith("#SBATCH --")}


@pytest.fixture
def finished_study(slurm, working_folder, capsys):
    """Two cells that were sent as the array 101 and ended: one failed, one over its time."""
    assert run(["submit", "-m", *WORDS, "batch=32,64", "+cluster.sbatch.qos=mine"]) == 0
    ended = sacct_line("101_0", "FAILED", "1:0") + sacct_line("101_1", "TIMEOUT")
    slurm.set_output("sacct", ended)
    capsys.readouterr()
    return Study(working_folder / "outputs" / "mine")


def resubmitted(capsys):
    answer = json.loads(capsys.readouterr().out)
    return {row["cell"]: row["why"] for row in answer["cells"]}


def slug_of_job(study, job):
    return next(slug for slug, sent in study.history().jobs.items() if sent == job)


def test_resubmit_failed_cell_keeps_its_settings(finished_study, slurm, capsys):
    failed = slug_of_job(finished_study, "101_0")
    assert run(["resubmit", "mine", "--failed", "--json"]) == 0
    assert resubmitted(capsys) == {failed: "failed before"}
    first, again = (sbatch_lines(text) for text in slurm.scripts)
    arrays = {
        line for line in first if line.startswith(("array=", "output=", "error="))
    }
    assert first - arrays <= again
    assert "qos=mine" in again
    assert finished_study.history().jobs[failed] == "102"


def test_resubmit_disturbed_measures_finished_cell_again(finished_study, slurm, capsys):
    quiet, hit = (slug_of_job(finished_study, job) for job in ("101_0", "101_1"))
    for slug, job in ((quiet, "101_0"), (hit, "101_1")):
        folder = finished_study.cell(slug)
        record = a_record(folder.read().cell, attempt=f"{job}.r0")
        if slug == hit:
            record = change_scheduling("timed", continued_s=(2.0,))(record)
        write_record(folder, record)
    slurm.set_output(
        "sacct", sacct_line("101_0", "COMPLETED") + sacct_line("101_1", "COMPLETED")
    )
    assert run(["resubmit", "mine", "--failed"]) == 0
    assert "nothing to resubmit" in capsys.readouterr().out
    assert run(["resubmit", "mine", "--disturbed", "--json"]) == 0
    assert resubmitted(capsys) == {hit: "disturbed before"}
    assert finished_study.cell(hit).read().supersedes == "101_1.r0"


def test_resubmit_accepts_more_minutes_and_memory(finished_study, slurm, capsys):
    over = slug_of_job(finished_study, "101_1")
    assert (
        run(
            [
                "resubmit",
                "mine",
                "--timeout",
                "--minutes",
                "90",
                "--mem",
                "100",
                "--json",
            ]
        )
        == 0
    )
    assert resubmitted(capsys) == {over: "timeout before"}
    assert {"time=90", "mem=100G"} <= sbatch_lines(slurm.scripts[-1])
    shape = finished_study.cell(over).read().shape
    assert shape is not None
    assert (shape.minutes, shape.mem_gb_per_node) == (90, 100)


def lost_state(slug, outcome=Outcome.NODE_FAIL, node="gr002"):
    return CellState(slug=slug, outcome=outcome, node=node)


def test_followup_job_waits_for_all_and_requests_no_gpu(slurm, working_folder, capsys):
    assert (
        run(["submit", "-m", *WORDS[1:], "gpus=1,2", "collect_after=true", "--json"])
        == 0
    )
    assert json.loads(capsys.readouterr().out)["closing"] == "103"
    options = sbatch_lines(slurm.scripts[2])
    expected = {
        "dependency=afterany:101:102",
        "kill-on-invalid-dep=yes",
        "cpus-per-task=1",
    }
    assert expected <= options
    assert not [line for line in options if line.startswith("gres")]
    commands = [
        line for line in slurm.scripts[2].splitlines() if "-m hpml_jobs" in line
    ]
    assert [line.split("-m hpml_jobs ")[1] for line in commands] == [
        f"collect mine --outputs {working_folder / 'outputs'}"
    ]


def test_resubmit_of_pack_is_packed_with_followup_job(slurm, working_folder, capsys):
    words = ("-m", *WORDS, "batch=32,64", "pack=true", "collect_after=true")
    assert run(["submit", *words]) == 0
    assert "job 101, 2 cells as one pack: 1 node x 2 rtx8000" in capsys.readouterr().out
    slurm.set_output("sacct", sacct_line("101", "CANCELLED by 0"))
    assert run(["resubmit", "mine", "--cancelled", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {row["job"] for row in answer["cells"]} == {"103"}
    assert answer["closing"] == "104"
    assert (
        len(
            [line for line in slurm.scripts[2].splitlines() if line.startswith("cell ")]
        )
        == 2
    )


def test_study_over_budget_is_refused(slurm, capsys):
    assert run(["submit", *WORDS, "minutes=60", "cluster.gpu_hours_budget=1.5"]) == 2
    assert (
        "request up to 2 GPU-hours; cluster.gpu_hours_budget is 1.5"
        in capsys.readouterr().err
    )
    assert slurm.scripts == []
    assert not Path("outputs").exists()  # it is not the most recently submitted study
    assert run(["submit", *WORDS, "minutes=30", "cluster.gpu_hours_budget=1.5"]) == 0
    assert "up to 1 GPU-hours" in capsys.readouterr().out
    # two GPUs that ran for a minute of those 30 have used 1/30 of a GPU-hour
    slurm.set_output("sacct", sacct_line("101", "FAILED", "1:0"))
    assert run(["submit", *WORDS, "minutes=45", "cluster.gpu_hours_budget=1.5"]) == 2
    assert "request up to 1.5 GPU-hours, after 0.0333 used" in capsys.readouterr().err


def test_cancel_uses_job_ids_and_shared_job_once(finished_study, slurm, capsys):
    slurm.set_output("scancel")
    slurm.set_output("sacct", "")
    slurm.set_output("squeue", "")
    assert run(["cancel", "mine"]) == 0
    assert "no job is pending or running" in capsys.readouterr().out
    assert slurm.calls("scancel") == []
    states = [
        CellState(slug="a", outcome=Outcome.RUNNING, job="7"),
        CellState(slug="b", outcome=Outcome.PENDING, job="7"),
        CellState(slug="c", outcome=Outcome.OK, job="8"),
    ]
    assert active_jobs(states) == {"7": ["a", "b"]}


def test_cancel_failure_is_reported(slurm):
    from hpml_jobs.status.cancel import cancel_jobs  # noqa: PLC0415

    slurm.set_output(
        "scancel", err="scancel: error: Kill job error: Access denied\n", code=1
    )
    with pytest.raises(HpmlError, match=r"Access denied; look at its status"):
        cancel_jobs(["101_0", "101_1"])
    assert slurm.calls("scancel") == ["101_0 101_1"]


def test_cancel_spares_a_process_that_only_has_the_pid_of_a_run():
    from hpml_jobs.status.cancel import cancel_jobs  # noqa: PLC0415

    words = [sys.executable, "-c", "import time; time.sleep(3600)", "notes-hpml.txt"]
    with subprocess.Popen(words) as stranger:
        try:
            with pytest.raises(
                HpmlError, match="is not one of your runs on this machine"
            ):
                cancel_jobs([f"local-{stranger.pid}-1700000000"])
            assert stranger.poll() is None
        finally:
            stranger.kill()
