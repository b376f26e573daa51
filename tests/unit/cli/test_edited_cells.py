"""A cell.json edited by hand, and a cell that is run beside its own job."""

import json

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.cell import Outcome
from hpml_jobs.job.run import attempt_cell
from hpml_jobs.study.study import Study
from tests.unit.slurm_output import sacct_line, squeue_line

WORDS = ("gpus=2", "workload=digits", "study=mine", "cluster=greene")


@pytest.fixture
def study(slurm, working_folder, capsys):
    """A cell that was sent as job 101."""
    assert run(["submit", *WORDS]) == 0
    capsys.readouterr()
    return Study(working_folder / "outputs" / "mine")


def edit(study, key, value):
    (folder,) = study.cells()
    content = json.loads(folder.cell_json.read_text())
    content["cell"][key] = value
    folder.cell_json.write_text(json.dumps(content))
    return folder


def test_resubmit_of_edited_cell_is_refused(slurm, study, capsys):
    slurm.set_output("sacct", sacct_line("101", "FAILED", "1:0"))
    folder = edit(study, "batch", 64)
    assert run(["resubmit", "mine", "*"]) == 1
    error = capsys.readouterr().err
    assert f"cells/{folder.slug}/cell.json describes another cell, ddp-" in error
    assert "repeat the command that submitted the study, which restores it" in error
    assert len(error.splitlines()) == 1
    assert len(slurm.scripts) == 1
    assert run(["submit", *WORDS]) == 0  # as the message says
    assert folder.read().cell.slug == folder.slug
    assert len(slurm.scripts) == 2


@pytest.mark.parametrize(("key", "value"), [("batch", 64), ("gpus", 4)])
def test_job_of_edited_cell_fails_with_reason(study, key, value):
    folder = edit(study, key, value)
    end = attempt_cell(folder)
    assert end.outcome is Outcome.FAILED
    assert "cell.json describes another cell" in (end.reason or "")


@pytest.mark.parametrize("state", ["RUNNING", "PENDING"])
def test_run_beside_its_job_is_refused(slurm, study, capsys, state):
    slurm.set_output("squeue", squeue_line("101", state, node="gr001"))
    assert run(["run", *WORDS]) == 1
    error = capsys.readouterr().err
    assert f"is {state.lower()} as job 101 (" in error
    assert "wait for it, or cancel it" in error
    assert not list(study.cells_folder.glob("*/attempts"))
