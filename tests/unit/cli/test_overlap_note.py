"""What isolation costs is announced before cells are submitted: time, or shared nodes."""

import json

import pytest

from hpml_jobs.cli.main import run

KEY = "add cluster.isolate=serial (one cell at a time)"


def note(words, capsys):
    isolate = (
        [] if any("isolate" in word for word in words) else ["cluster.isolate=off"]
    )
    words = [
        "plan",
        *words,
        *isolate,
        "workload=digits",
        "study=mine",
        "cluster=greene",
        "--json",
    ]
    assert run(words) == 0
    return json.loads(capsys.readouterr().out)["overlap"]


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (["-m", "gpus=1,2,4"], 2),
        (["-m", "gpus=1", "batch=32,64", "loader_workers=20"], 2),
    ],
)
def test_cells_that_fit_on_a_node_are_announced(
    slurm, working_folder, capsys, words, count
):
    expected = f"{count} of these cells fit on one node at the same time"
    assert note(words, capsys).startswith(expected)
    assert KEY in note(words, capsys)


@pytest.mark.parametrize(
    "words",
    [
        ["gpus=1"],
        ["gpus=1", "cluster.isolate=serial"],
        ["-m", "gpus=1", "batch=32,64", "cluster.isolate=exclusive"],
        ["-m", "gpus=1", "batch=32,64", "loader_workers=30"],
    ],
)
def test_cells_that_cannot_share_a_node_are_not(slurm, working_folder, capsys, words):
    assert note(words, capsys) == ""


def test_budget_is_of_whole_nodes_where_these_are_charged(
    slurm, working_folder, capsys
):
    words = ["-m", "gpus=1,2", "minutes=30", "workload=digits", "cluster=greene"]
    words += ["cluster.gpu_hours_budget=2"]
    assert run(["plan", *words]) == 0
    assert run(["plan", *words, "cluster.isolate=exclusive"]) == 2
    assert "request up to 4 GPU-hours" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "cost"),
    [
        (["-m", "gpus=1,2", "minutes=30"], "4 GPU-hours at most instead of 1.5"),
        (["gpus=4", "minutes=30"], "no more"),
        (["gpus=1", "device=cpu"], None),
    ],
)
def test_plan_names_the_cost_of_whole_nodes(slurm, working_folder, capsys, words, cost):
    command = [
        "plan",
        *words,
        "workload=digits",
        "study=mine",
        "cluster=greene",
        "--json",
    ]
    assert run(command) == 0
    expected = (
        "jobs of others may run on the node of a cell; cluster.isolate=exclusive asks for whole "
        f"nodes, and costs {cost}"
    )
    assert json.loads(capsys.readouterr().out)["exclusive"] == (
        expected if cost else ""
    )
