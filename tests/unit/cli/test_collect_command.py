"""`collect`: the report on screen or as JSON, exit codes, and waiting for cells."""

import json
from pathlib import Path

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.status import watch
from tests.unit.builders import lab_cell, lab_record
from tests.unit.cli.closed_pipe import run_into_closed_pipe
from tests.unit.slurm_output import sacct_line, squeue_line
from tests.unit.study_builder import StudyBuilder


@pytest.fixture
def builder(slurm, working_folder):
    """Two measured cells, and a third one that job 17_2 runs."""
    builder = StudyBuilder(working_folder / "outputs" / "mine")
    builder.with_record(lab_record(lab_cell(1, 32), 10.0))
    builder.with_record(lab_record(lab_cell(2, 32), 8.0))
    builder.with_cell(lab_cell(4, 32)).sent_as("17_0", "17_1", "17_2")
    slurm.set_output("squeue", squeue_line("17_2", "RUNNING", node="gr001"))
    slurm.set_output(
        "sacct", sacct_line("17_0", "COMPLETED") + sacct_line("17_1", "COMPLETED")
    )
    return builder


def test_collect_json_prints_json_and_writes_nothing(builder, capsys):
    assert run(["collect", "mine", "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out)["study"] == "mine"
    assert not builder.study.report.exists()
    assert run(["collect", "mine"]) == 0
    assert out == (builder.study.report / "tables.json").read_text()


def test_closed_pipe_keeps_no_page_from_being_written(builder):
    assert run_into_closed_pipe("collect", "mine") == 0
    assert (builder.study.report / "report.html").exists()


def test_collect_strict_fails_while_a_cell_is_unfinished(builder, capsys):
    assert run(["collect", "mine", "--strict"]) == 1
    assert "Table 1" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["collect", "status"])
def test_strict_fails_without_any_cell(command, laptop, capsys):
    StudyBuilder(Path("outputs") / "empty")
    assert run([command, "empty"]) == 0
    assert run([command, "empty", "--strict"]) == 1


def test_collect_wait_reports_after_the_last_cell(builder, slurm, capsys, monkeypatch):
    pauses = []

    def end_job(seconds):
        pauses.append(seconds)
        slurm.set_output("squeue")
        slurm.set_output("sacct", sacct_line("17_2", "TIMEOUT"))

    monkeypatch.setattr(watch, "sleep", end_job)
    assert run(["collect", "mine", "--wait", "--json"]) == 0
    out, err = capsys.readouterr()
    (group,) = json.loads(out)["groups"]
    assert [cell["outcome"] for cell in group["missing_cells"]] == ["timeout"]
    assert "1 running" in err  # the states go to standard error
    assert len(pauses) == 1
