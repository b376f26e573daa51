"""Submissions that a full disk, Ctrl-C or an odd sbatch breaks off: what was sent is said."""

import errno
import json
import os
from pathlib import Path

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.study.study import Study
from tests.unit.cli.closed_pipe import run_into_closed_pipe
from tests.unit.slurm_output import squeue_line

WORDS = [
    "submit",
    "-m",
    "gpus=1,2,4",
    "workload=digits",
    "study=mine",
    "cluster=greene",
]
NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def study(slurm, working_folder):
    return Study(working_folder / "outputs" / "mine")


def last_line(capsys):
    return capsys.readouterr().err.strip().splitlines()[-1]


def queue_all(slurm, study):
    jobs = study.history().jobs.values()
    slurm.set_output(
        "squeue", "".join(squeue_line(job, "PENDING", "Priority") for job in jobs)
    )


def test_ctrl_c_during_sbatch_says_what_was_sent(slurm, study, capsys):
    real = slurm.bin / "real-sbatch"
    (slurm.bin / "sbatch").rename(real)
    count = f'[ "$(ls "{slurm.folder}" | grep -c "[0-9]*\\.sh$")" = 1 ]'
    slurm._command(
        "sbatch", f'#!/bin/sh\n{count} && kill -INT {os.getpid()}\nexec {real} "$@"\n'
    )
    assert run(WORDS) == 130
    line = last_line(capsys)
    assert line.startswith(
        "hpml-jobs: interrupted; submitted: 2 cells (SLURM 101, 102)"
    )
    assert "; not submitted: ddp-4gpu-" in line
    assert line.endswith(f"to submit the rest: hpml-jobs {' '.join(WORDS)}")
    assert sorted(study.history().jobs.values()) == ["101", "102"]
    queue_all(slurm, study)
    assert run([*WORDS, "--json"]) == 0
    why = [row["why"] for row in json.loads(capsys.readouterr().out)["cells"]]
    assert sorted(why) == [
        "left out: pending",
        "left out: pending",
        "not submitted yet",
    ]
    assert len(slurm.scripts) == 3


def test_ctrl_c_before_sbatch_leaves_nothing_sent(slurm, study, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Study, "submitting", interrupted)
    assert run(WORDS) == 130
    assert (
        f"interrupted; nothing was submitted; again: hpml-jobs {' '.join(WORDS)}"
        in last_line(capsys)
    )
    assert slurm.scripts == []
    assert not study.root.exists()  # no empty study


def test_full_disk_during_submission_is_one_line(slurm, study, capsys, monkeypatch):
    real = Path.open

    def opening(path, *mode, **options):
        is_appended = mode == ("a+b",) and len(slurm.scripts) == 1
        if is_appended and b'"sent"' in study.manifest.read_bytes():
            raise NO_SPACE
        return real(path, *mode, **options)

    monkeypatch.setattr(Path, "open", opening)
    assert run(WORDS) == 1
    line = last_line(capsys)
    assert "manifest.jsonl cannot be written: No space left on device" in line
    assert "; submitted: 1 cell (SLURM 101); not submitted: " in line
    assert line.endswith(f"to submit the rest: hpml-jobs {' '.join(WORDS)}")
    assert "Traceback" not in line
    monkeypatch.undo()
    assert list(study.history().jobs.values()) == ["101"]
    assert len(list(study.lines())) == 2


@pytest.mark.parametrize("name", ["manifest.jsonl", "lock"])
@pytest.mark.parametrize("words", [WORDS, ["resubmit", "mine", "--missing"]])
def test_folder_in_place_of_file_is_one_line(slurm, study, capsys, name, words):
    assert run(WORDS) == 0
    (study.root / name).unlink()
    (study.root / name).mkdir()
    capsys.readouterr()
    code = run(words)
    printed = capsys.readouterr()
    assert code == 1
    assert (
        f"outputs/mine/{name} is a folder: remove it, it must be a file" in printed.err
    )
    assert (
        len([line for line in printed.err.splitlines() if "GPU type" not in line]) == 1
    )
    assert len(slurm.scripts) == 3


@pytest.mark.parametrize("streams", ["stdout", "both"])
def test_closed_pipe_does_not_end_a_submission(slurm, study, streams):
    assert run_into_closed_pipe(*WORDS, is_stderr_closed=streams == "both") == 0
    assert sorted(study.history().jobs.values()) == ["101", "102", "103"]
