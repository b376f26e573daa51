"""Jobs whose disk fills up, or whose study's folder is deleted or renamed while they run."""

import errno
import os
import shutil

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.job import run as job_run
from hpml_jobs.job.run import attempt_cell, run_task
from hpml_jobs.slurm.jobs import NO_SPACE_CODE
from hpml_jobs.study.study import Study
from tests.unit.slurm_output import sacct_line

WORDS = ("submit", "gpus=2", "workload=digits", "study=mine", "cluster=greene")
NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def folder(slurm, working_folder, capsys, monkeypatch):
    """The folder of a cell that was sent as job 101, in that job."""
    assert run([*WORDS]) == 0
    capsys.readouterr()
    monkeypatch.setenv("SLURM_JOB_ID", "101")
    (folder,) = Study((working_folder / "outputs" / "mine").resolve()).cells()
    return folder


def workers_that(action, monkeypatch, code=1):
    """Let the job run this instead of its workers."""

    def act(*_):
        action()
        return code, False

    monkeypatch.setattr(job_run, "run_workers", act)


def test_full_disk_during_run_is_the_reason(folder, slurm, capsys, monkeypatch):
    workers_that(lambda: None, monkeypatch)
    monkeypatch.setattr(
        job_run, "_full_disk", lambda path: f"{NO_SPACE.strerror}: {path}"
    )
    assert attempt_cell(folder).outcome is Outcome.FAILED
    monkeypatch.delenv("SLURM_JOB_ID")
    slurm.set_output("sacct", sacct_line("101", "FAILED", "1:0"))
    assert run(["status", "mine"]) == 0
    assert f"No space left on device: {folder.root}"[:40] in capsys.readouterr().out
    end = folder.last_end()
    assert end is not None
    assert (end.reason or "").startswith(
        f"No space left on device: {folder.root}; the workers"
    )
    assert not folder.attempt("101.r0").reserve.exists()


def test_full_disk_while_record_is_published_fails_cell(folder, monkeypatch):
    def full(*_):
        raise NO_SPACE

    workers_that(lambda: None, monkeypatch, code=0)
    monkeypatch.setattr(job_run, "publish", full)
    end = attempt_cell(folder)
    assert end.outcome is Outcome.FAILED
    assert end.reason == f"No space left on device: {folder.root}"


def test_full_disk_at_start_is_told_by_exit_code(folder, slurm, capsys, monkeypatch):
    def full(*_, **__):
        raise NO_SPACE

    with monkeypatch.context() as full_disk:
        full_disk.setattr(job_run, "write_whole", full)
        full_disk.setattr(job_run, "die_with_parent", lambda: None)
        with pytest.raises(SystemExit) as ended:
            run_task(str(folder.root.parent), (folder.slug,))
    assert ended.value.code == NO_SPACE_CODE
    assert f"No space left on device: {folder.root}" in capsys.readouterr().err
    shutil.rmtree(folder.attempts)
    slurm.set_output("sacct", sacct_line("101", "FAILED", f"{NO_SPACE_CODE}:0"))
    assert run(["status", "mine", "--json"]) == 0
    assert (
        "exit code 28:0 (no space left on device: outputs/mine)"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize("change", ["rename", "delete"])
def test_removed_study_folder_is_not_made_again(
    folder, working_folder, monkeypatch, change
):
    root = working_folder / "outputs" / "mine"

    def remove():
        if change == "rename":
            root.rename(root.with_name("other"))
        else:
            shutil.rmtree(root)

    workers_that(remove, monkeypatch)
    with pytest.raises(HpmlError, match=r"was deleted or renamed while the cell ran"):
        attempt_cell(folder)
    assert not root.exists()
