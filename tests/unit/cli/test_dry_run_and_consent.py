"""What a command would do, and what it asks before it requests many GPU-hours."""

import pytest

from hpml_jobs.cli import deliver
from hpml_jobs.cli.main import run
from tests.unit.slurm_output import sacct_line, squeue_line

WORDS = ("-m", "gpus=1,2", "workload=digits", "study=mine", "cluster=greene")


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


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_plan_that_would_be_refused_is_shown_and_exits_2(form, slurm, capsys):
    assert run(["plan", *WORDS, "cluster.gpu_hours_budget=0.1", *form]) == 2
    shown = capsys.readouterr()
    assert "ddp-2gpu-b128-digits" in shown.out
    assert "hpml-jobs: it would be refused: these cells request up to" in shown.err


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
    assert (
        "2 new cells would not be compared with the study's 2: data.limit=512, "
        in printed
    )
    assert "nothing was submitted; --yes submits without asking" in printed
    assert len(slurm.scripts) == 2


@pytest.mark.parametrize("words", [[], ["*"]])
def test_cancel_without_a_study_names_it_and_is_refused(words, slurm, capsys):
    assert run([*WORDS]) == 0
    slurm.set_output("scancel")
    slurm.set_output("squeue", squeue_line("101", "PENDING"))
    assert run(["cancel", *words]) == 2
    message = "nothing was cancelled: name the study (mine has 1 such job)"
    assert message in capsys.readouterr().err
    assert slurm.calls("scancel") == []
    assert run(["cancel", "mine"]) == 0
    assert len(slurm.calls("scancel")) == 1


def test_submission_into_a_pipe_never_asks(slurm, monkeypatch):
    monkeypatch.setattr("builtins.input", pytest.fail)
    assert run([*WORDS, "minutes=60", "cluster.confirm_gpu_hours=1"]) == 0
    assert len(slurm.scripts) == 2
