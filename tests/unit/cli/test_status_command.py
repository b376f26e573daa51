"""The commands status and logs: states, resources used, suggested commands."""

import json

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.cell import Outcome
from hpml_jobs.study.study import Study
from tests.unit.slurm_output import sacct_line, squeue_line
from tests.unit.study_builder import StudyBuilder

OWN_PART = """\
def build():
    from torch import nn
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10))

def later():
"""
"""A model, and a function that differs between two versions of its file."""


@pytest.fixture
def builder(slurm, working_folder):
    """Four cells of one array: one measured, one failed, one out of time, one held."""
    study = StudyBuilder(working_folder / "outputs" / "mine").with_batches(
        32, 64, 128, 256
    )
    study.sent_as("17_0", "17_1", "17_2", "17_3")
    study.end_attempt(32, "17_0", Outcome.OK)
    study.end_attempt(
        64, "17_1", Outcome.FAILED, "rank 1: no", rank=1, traceback="ValueError: no"
    )
    slurm.set_output(
        "sacct",
        sacct_line("17_0", "COMPLETED")
        + sacct_line("17_1", "FAILED", "1:0")
        + sacct_line("17_2", "TIMEOUT")
        + sacct_line("17_3", "PENDING", node="None assigned"),
    )
    slurm.set_output("squeue", squeue_line("17_3", "PENDING", "JobHeldUser"))
    return study


def stdout_of(capsys, *words):
    assert run([*words]) == 0
    return capsys.readouterr().out


def test_status_json_has_usage_and_next_commands(builder, capsys):
    answer = json.loads(stdout_of(capsys, "status", "mine", "--json"))
    assert answer["usage"]["gpu_hours_used"] == pytest.approx(2 * 3 / 60)
    assert answer["usage"]["gpu_hours_asked"] == 3
    assert answer["usage"]["runs"] == 3
    assert len(answer["advice"]) == 4
    by_outcome = {cell["outcome"]: cell for cell in answer["cells"]}
    assert by_outcome["timeout"]["minutes"] == 30
    assert by_outcome["pending"]["who"] == "you"


def test_status_says_that_squeue_is_silent_where_sacct_answers(builder, slurm, capsys):
    slurm.set_output("squeue", err="slurm_load_jobs error: Socket timed out", code=1)
    shown = stdout_of(capsys, "status", "mine")
    assert "warning: SLURM does not answer (squeue: slurm_load_jobs error: " in shown


@pytest.mark.parametrize("is_repeated", [False, True])
def test_failed_cell_of_older_code_is_hinted_at_until_it_is_repeated(
    is_repeated, slurm, working_folder, capsys
):
    """Also where the corrected code has other parameters; then nothing is left to resubmit."""
    module = working_folder / "parts.py"
    module.write_text(f"{OWN_PART}    raise ValueError\n")
    model = (
        "workload=digits",
        "workload.model=parts:build",
        "workload.parameters=null",
    )
    words = ("gpus=1", "batch=64", *model)
    assert run([*words, "cluster=greene", "study=mine"]) == 0
    (job,) = Study(working_folder / "outputs" / "mine").history().sent
    slurm.set_output("sacct", sacct_line(job, "FAILED", "1:0"))
    module.write_text(f"{OWN_PART.replace(', 10', ', 20')}    ...\n")
    if is_repeated:
        assert run([*words, "cluster=greene", "study=mine"]) == 0
    capsys.readouterr()
    assert run(["status", "mine"]) in (0, 1)
    shown = capsys.readouterr().out
    assert ("of older code without a record" in shown) is not is_repeated
    replaced = "1 cell of older code, submitted again with the current code"
    assert (replaced in shown) is is_repeated
    cells = [line for line in shown.splitlines() if line.startswith("single-")]
    is_failed = ["failed" in line for line in cells]
    assert is_failed == ([False, True] if is_repeated else [True])
    assert run(["resubmit", "mine", "--failed"]) == (0 if is_repeated else 1)
    printed = capsys.readouterr()
    refusal, skipped = "your code changed since", f"left out: {replaced}"
    assert (skipped if is_repeated else refusal) in printed.err
    assert ("nothing to resubmit" in printed.out) is is_repeated
