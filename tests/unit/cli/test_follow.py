"""The log of a running cell, printed as it grows."""

import os
from pathlib import Path

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.cell import Outcome
from tests.unit.slurm_output import squeue_line
from tests.unit.study_builder import StudyBuilder


@pytest.fixture
def builder(slurm, working_folder):
    """Two cells of an array: one failed, one without a result."""
    study = StudyBuilder(working_folder / "outputs" / "mine").with_batches(64, 256)
    study.sent_as("17_0", "17_3")
    study.end_attempt(64, "17_0", Outcome.FAILED, "rank 1: no")
    return study


def test_follow_becomes_tail_of_the_running_cell(slurm, builder, monkeypatch, capsys):
    builder.begin_attempt(256, "17_3")
    slurm.set_output("squeue", squeue_line("17_3", "RUNNING", node="gr001"))
    commands = []
    monkeypatch.setattr(os, "execvp", lambda _, words: commands.append(words))
    assert run(["logs", "mine", "-f", "-n", "2"]) == 0
    (cell,) = [folder for folder in builder.study.cells() if "b256" in folder.slug]
    ((*words, log),) = commands
    assert words == ["tail", "-n", "2", "-F"]
    assert Path(log).resolve() == cell.attempt("17_3.r0").log_of(0).resolve()
    assert f"==== {cell.slug}, until Ctrl-C" in capsys.readouterr().out
