"""What a command would do, and what it asks before it requests many GPU-hours."""

import json

import pytest

from hpml_jobs.cli import deliver
from hpml_jobs.cli.main import run
from hpml_jobs.core.cell import Outcome
from tests.unit.slurm_output import sacct_line, squeue_line
from tests.unit.study_builder import StudyBuilder

WORDS = ("-m", "gpus=1,2", "workload=digits", "study=mine", "cluster=greene")
LARGE = ("-m", "gpus=1", f"batch={','.join(map(str, range(1, 41)))}", *WORDS[2:])


@pytest.fixture
def terminal(monkeypatch):
    """A terminal whose user gives the answers; the questions are kept."""
    questions = []

    def with_answer(answer):
        def reply(question):
            questions.append(question)
            if answer is None:
                raise EOFError
            return answer

        monkeypatch.setattr("builtins.input", reply)
        monkeypatch.setattr(deliver, "is_interactive", lambda: True)
        return questions

    return with_answer


@pytest.mark.parametrize("option", ["--dry-run", "-n"])
def test_submit_dry_run_prints_plan(option, slurm, working_folder, capsys):
    assert run(["plan", *WORDS]) == 0
    plan = capsys.readouterr().out
    assert run([option, *WORDS]) == 0
    assert capsys.readouterr().out == plan
    assert "\nscript of 1 cell: 1 node x 1 rtx8000, " in plan
    assert slurm.scripts == []
    assert list(working_folder.iterdir()) == []


def test_jobs_without_gpus_have_no_gpu_hours(slurm, working_folder, capsys):
    cpus = (*WORDS[:-1], "cluster=slurm", "device=cpu")
    assert run(["plan", *cpus]) == 0
    assert run([*cpus]) == 0
    out = capsys.readouterr().out
    assert "\n2 cells as 2 jobs\n" in out
    assert "GPU-hours" not in out


def test_resubmit_dry_run_submits_nothing(slurm, working_folder, capsys):
    assert run([*WORDS]) == 0
    slurm.set_output(
        "sacct", sacct_line("101", "FAILED", "1:0") + sacct_line("102", "COMPLETED")
    )
    manifest = working_folder / "outputs" / "mine" / "manifest.jsonl"
    before = manifest.read_bytes()
    capsys.readouterr()
    assert run(["resubmit", "mine", "--failed", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "failed before" in out
    assert "nothing was submitted; it would be 1 cell as 1 job" in out
    assert manifest.read_bytes() == before
    assert len(slurm.scripts) == 2


@pytest.mark.parametrize("answer", ["", "n", "what", None])
def test_submission_above_limit_can_be_declined(
    answer, slurm, working_folder, terminal, capsys
):
    questions = terminal(answer)
    assert run([*WORDS, "minutes=60", "cluster.confirm_gpu_hours=2.5"]) == 1
    assert questions == ["more than cluster.confirm_gpu_hours=2.5; submit? [y/N] "]
    printed = capsys.readouterr()
    assert printed.out.startswith("up to 3 GPU-hours: 2 cells as 2 jobs\n")
    assert printed.err.endswith(
        "hpml-jobs: nothing was submitted; --yes submits without asking\n"
    )
    assert slurm.scripts == []
    assert list(working_folder.iterdir()) == []  # neither the study nor outputs/


def test_submission_above_limit_asks_once_and_submits(slurm, terminal):
    questions = terminal("y")
    assert run([*WORDS, "minutes=60", "cluster.confirm_gpu_hours=2.5"]) == 0
    assert len(questions) == 1
    assert len(slurm.scripts) == 2


@pytest.mark.parametrize(
    "words",
    [
        ("--yes", "minutes=60", "cluster.confirm_gpu_hours=1"),
        ("minutes=60",),
        ("--json", "minutes=60", "cluster.confirm_gpu_hours=1"),
        ("minutes=600", "cluster.confirm_gpu_hours=null"),
    ],
    ids=["yes", "below the limit", "json", "no limit"],
)
def test_submission_does_not_ask(words, slurm, terminal):
    questions = terminal("n")
    assert run([*WORDS, *words]) == 0
    assert questions == []
    assert len(slurm.scripts) == 2


UNLIKE = ("-m", "gpus=1,2", "study=mine", "workload=digits", "data.limit=512")


@pytest.mark.parametrize("cluster", ["cluster=greene", "cluster=local"])
def test_cells_that_share_no_table_with_the_study_are_asked_about(
    cluster, slurm, working_folder, terminal, capsys
):
    assert run([*WORDS]) == 0
    questions = terminal("n")
    assert run([*UNLIKE, cluster]) == 1
    assert questions == ["run them anyway? [y/N] "]
    printed = capsys.readouterr().err
    assert "2 new cells cannot be compared with the 2 cells of the study" in printed
    assert "nothing was submitted; --yes submits without asking" in printed
    assert len(slurm.scripts) == 2


@pytest.mark.parametrize("option", ["--yes", "--json"])
def test_cells_that_share_no_table_are_submitted_without_a_question(
    option, slurm, terminal
):
    assert run([*WORDS]) == 0
    questions = terminal("n")
    assert run([option, *UNLIKE, "cluster=greene"]) == 0
    assert questions == []
    assert len(slurm.scripts) == 4


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 1)])
def test_cancel_without_a_study_names_it_and_asks(answer, code, slurm, terminal):
    assert run([*WORDS]) == 0
    slurm.set_output("scancel")
    slurm.set_output("squeue", squeue_line("101", "PENDING"))
    questions = terminal(answer)
    assert run(["cancel"]) == code
    assert questions == ["cancel 1 job of study mine? [y/N] "]
    assert len(slurm.calls("scancel")) == 1 - code
    assert run(["cancel", "mine"]) == 0
    assert len(questions) == 1


@pytest.mark.parametrize("words", [[], ["*"]])
def test_cancel_without_a_study_and_a_terminal_is_refused(words, slurm, capsys):
    assert run([*WORDS]) == 0
    slurm.set_output("squeue", squeue_line("101", "PENDING"))
    assert run(["cancel", *words]) == 2
    assert (
        "nothing was cancelled: there is no terminal to ask on; name the study"
        in capsys.readouterr().err
    )
    assert slurm.calls("scancel") == []


def test_submission_into_a_pipe_never_asks(slurm, monkeypatch):
    monkeypatch.setattr("builtins.input", pytest.fail)
    assert run([*WORDS, "minutes=60", "cluster.confirm_gpu_hours=1"]) == 0
    assert len(slurm.scripts) == 2


def test_large_submission_lists_its_first_cells(slurm, capsys):
    assert run([*LARGE]) == 0
    out = capsys.readouterr().out
    assert out.count("single-1gpu-b") == 30
    assert "… and 10 more: --all shows them" in out
    assert run(["plan", *LARGE, "--all"]) == 0
    assert capsys.readouterr().out.count("single-1gpu-b") >= 40


def test_status_of_large_study_lists_the_most_urgent(slurm, working_folder, capsys):
    batches = range(1, 41)
    study = StudyBuilder(working_folder / "outputs" / "mine").with_batches(*batches)
    study.sent_as(*(f"17_{index}" for index in range(40)))
    for batch in (5, 7):
        study.end_attempt(batch, f"17_{batch - 1}", Outcome.FAILED, "rank 0: no")
    pending = (index for index in range(40) if index not in (4, 6))
    slurm.set_output(
        "squeue", "".join(squeue_line(f"17_{i}", "PENDING") for i in pending)
    )
    slurm.set_output(
        "sacct", sacct_line("17_4", "FAILED") + sacct_line("17_6", "FAILED")
    )
    assert run(["status", "mine"]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert sum(" failed " in line for line in lines[:30]) == 2
    assert lines[30:32] == ["… and 11 more", "40 cells: 2 failed, 38 pending"]
    assert run(["status", "mine", "--all"]) == 0
    assert capsys.readouterr().out.count("pending") >= 38
    assert run(["status", "mine", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["cells"]) == 40
