"""Cells that would share a node at the same time are announced before they are submitted."""

import json

import pytest

from hpml_jobs.cli.main import run

KEY = "add cluster.isolate=serial (one cell at a time)"


def note(words, capsys):
    assert run(["plan", *words, "workload=digits", "study=mine", "cluster=greene", "--json"]) == 0
    return json.loads(capsys.readouterr().out)["overlap"]


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (["-m", "gpus=1,2,4"], 2),
        (["-m", "gpus=1", "batch=32,64,128,256,512"], 4),
        (["-m", "gpus=2", "batch=32,64"], 2),
        (["-m", "gpus=1", "batch=32,64", "loader_workers=20"], 2),
    ],
)
def test_cells_that_fit_on_a_node_are_announced(slurm, working_folder, capsys, words, count):
    expected = f"{count} of these cells fit on one node at the same time"
    assert note(words, capsys).startswith(expected)
    assert KEY in note(words, capsys)


@pytest.mark.parametrize(
    "words",
    [
        ["gpus=1"],
        ["-m", "gpus=4", "batch=32,64"],
        ["-m", "gpus=4,8"],
        ["-m", "gpus=1", "batch=32,64", "cluster.isolate=serial"],
        ["-m", "gpus=1", "batch=32,64", "cluster.isolate=exclusive"],
        ["-m", "gpus=1", "batch=32,64", "cluster.array_parallelism=1"],
        ["-m", "gpus=1", "batch=32,64", "pack=true"],
        ["-m", "gpus=1", "batch=32,64", "loader_workers=30"],
        ["-m", "gpus=1", "batch=32,64", "cluster.mem_gb_per_gpu=120"],
    ],
)
def test_cells_that_cannot_share_a_node_are_not(slurm, working_folder, capsys, words):
    assert note(words, capsys) == ""


def test_plan_and_submission_print_the_note_once(slurm, working_folder, capsys):
    words = ["-m", "gpus=1,2", "workload=digits", "study=mine", "cluster=greene"]
    assert run(["plan", *words]) == 0
    assert capsys.readouterr().out.count(KEY) == 1
    assert run(["submit", *words]) == 0
    assert capsys.readouterr().err.count(KEY) == 1
