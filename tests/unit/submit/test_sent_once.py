"""The same command given twice: no cell runs twice, and no follow-up job is made twice."""

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.status import rules
from hpml_jobs.study.files import hold_lock
from hpml_jobs.study.study import Study
from hpml_jobs.submit import local
from tests.unit.slurm_output import squeue_line

CELLS = ("-m", "gpus=1", "batch=32,64", "workload=digits", "study=mine")
FOLLOWUPS = {
    "report": (*CELLS, "collect_after=true"),
    "next step": ("gpus=auto", "batch=32", "workload=digits", "study=mine"),
}


def test_cells_of_this_machine_are_taken_while_the_study_is_locked(
    laptop, monkeypatch, capsys
) -> None:
    words = ["submit", *CELLS, "cluster=local", "device=cpu"]
    announce, begun = local.announce, []

    def announced(plan, cells, job):
        with pytest.raises(TimeoutError), hold_lock(plan.study.lock, 0):
            pass
        announce(plan, cells, job)

    def begin(selection, job, *_):
        begun.append([planned.slug for planned in selection.send])
        if len(begun) == 1:  # another terminal, before the first cell has begun
            assert run(words) == 0

    monkeypatch.setattr(local, "announce", announced)
    monkeypatch.setattr(local, "run_all", begin)
    # it looks for our command
    monkeypatch.setattr(rules, "is_local_run", lambda _: True)
    run(words)
    assert [len(slugs) for slugs in begun] == [2, 0]
    assert (
        "0 cells to run, 2 left out (finished, pending or running)"
        in capsys.readouterr().out
    )


def queue(slurm, study) -> str:
    """Let all jobs of a study be pending; return the follow-up job."""
    history = study.history()
    jobs = [*history.sent, *history.closing]
    header = "JOBID|STATE|SUBMIT_TIME|START_TIME|TIME|TIME_LIMIT|NODELIST|REASON|NAME\n"
    table = header + "".join(squeue_line(job, "PENDING") for job in jobs)
    slurm.set_answers("squeue", ("%T", table), ("%i", "\n".join(["JOBID", *jobs, ""])))
    return [*history.closing][-1]


@pytest.fixture(params=FOLLOWUPS.values(), ids=FOLLOWUPS)
def words(request, slurm, working_folder):
    """A command with a follow-up job, given once."""
    words = ["submit", *request.param, "cluster=greene"]
    assert run(words) == 0
    return words


@pytest.fixture
def study(working_folder):
    return Study(working_folder / "outputs" / "mine")


def test_followup_job_that_waits_already_is_not_made_again(words, slurm, study, capsys):
    job, before = queue(slurm, study), len(slurm.scripts)
    capsys.readouterr()
    run(words)
    assert len(slurm.scripts) == before
    assert f"then job {job} " in capsys.readouterr().out


def test_followup_job_of_more_cells_is_made(slurm, study):
    words = ("submit", *CELLS, "cluster=greene", "collect_after=true")
    assert run([*words]) == 0
    queue(slurm, study)
    assert run([word.replace("32,64", "32,64,128") for word in words]) == 0
    dependency = slurm.scripts[-1].partition("dependency=afterany:")[2].splitlines()[0]
    assert dependency == "103:101"
