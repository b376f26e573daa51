"""The commands status and logs: states, resources used, suggested commands."""

import json

import pytest

from hpml_jobs.cli.console import states_table
from hpml_jobs.cli.hints import hints_for
from hpml_jobs.cli.main import run
from hpml_jobs.core.cell import Outcome
from hpml_jobs.status.states import study_status
from hpml_jobs.study.snapshot import CellState
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


def test_status_shows_states_usage_and_next_commands(builder, capsys):
    out = stdout_of(capsys, "status", "mine")
    assert "4 cells: 1 ok, 1 timeout, 1 failed, 1 pending" in out
    assert (
        "used 0.1 of 3 requested GPU-hours, in 3 runs; median wait in the queue 30 s\n"
    ) in out
    assert (
        "1 cell failed; to see why, and to submit again:\n"
        "hpml-jobs logs mine\nhpml-jobs resubmit mine --failed\n"
    ) in out
    assert (
        "1 cell reached the time limit; to see where each rank was, and if none was stuck:\n"
        "hpml-jobs logs mine\nhpml-jobs resubmit mine --timeout --minutes 60\n"
    ) in out
    assert "1 pending cell cannot start without action from you; to remove" in out
    assert "\nhpml-jobs cancel mine\n" in out
    assert (
        "held; release it with scontrol release JOB (JobHeldUser); you must act" in out
    )
    assert out.endswith(
        "next:\nhpml-jobs status mine --watch\nhpml-jobs collect mine\n"
    )


def test_status_with_pattern_covers_its_cells_only(builder, capsys):
    out = stdout_of(capsys, "status", "mine", "*-b64-*")
    assert "1 cell: 1 failed" in out
    assert "--timeout" not in out
    assert "GPU-hours" not in out


def test_status_json_has_usage_and_next_commands(builder, capsys):
    answer = json.loads(stdout_of(capsys, "status", "mine", "--json"))
    assert answer["usage"]["gpu_hours_used"] == pytest.approx(2 * 3 / 60)
    assert answer["usage"]["gpu_hours_asked"] == 3
    assert answer["usage"]["runs"] == 3
    assert len(answer["advice"]) == 4
    by_outcome = {cell["outcome"]: cell for cell in answer["cells"]}
    assert by_outcome["timeout"]["minutes"] == 30
    assert by_outcome["pending"]["who"] == "you"


def test_memory_of_the_job_is_doubled_in_the_suggested_command(slurm, builder):
    slurm.set_output("sacct", sacct_line("17_2", "OUT_OF_MEMORY"))
    states = study_status(builder.study).states
    (state,) = [state for state in states if state.outcome is Outcome.OOM]
    (hint,) = [hint for hint in hints_for([state], "mine") if "--oom" in hint]
    assert state.mem_gb == 16
    assert hint.endswith("resubmit mine --oom --mem 32")


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Outcome.INVALID, "resubmit mine --failed"),
        (
            Outcome.OOM,
            "1 cell ran out of memory:\nhpml-jobs resubmit mine --oom --mem 64",
        ),
        (
            Outcome.NODE_FAIL,
            "1 cell lost to a node failure or preemption:\nhpml-jobs resubmit",
        ),
        (Outcome.CANCELLED, "--cancelled"),
        (Outcome.MISSING, "--missing"),
    ],
)
def test_hints_exist_for_every_outcome(outcome, words):
    state = CellState(slug="ddp", outcome=outcome, job="17_0")
    assert any(words in line for line in hints_for([state], "mine"))


def test_hint_for_finished_cells_is_collect():
    cells = [
        CellState(slug="a", outcome=Outcome.OK, recorded=True),
        CellState(slug="b", outcome=Outcome.OOM, recorded=True),
        CellState(slug="c", outcome=Outcome.OOM, untried=True),
    ]
    assert hints_for(cells, "mine") == ["next:\nhpml-jobs collect mine"]


def test_states_table_too_long_keeps_failed_cells():
    cells = [CellState(slug=f"w{n}", outcome=Outcome.PENDING) for n in range(20)]
    cells.insert(10, CellState(slug="broken", outcome=Outcome.FAILED))
    table = states_table(cells, rows=5)
    names = [str(cell) for cell in table.columns[0].cells]
    assert "broken" in names
    assert names[-1] == "… and 17 more"
    assert len(names) == 5


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
