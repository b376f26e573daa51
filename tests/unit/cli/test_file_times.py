"""What is said of a study does not depend on the modification times of its files."""

import os

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.record import Attempt
from hpml_jobs.study.cell_folder import AttemptEnd
from hpml_jobs.study.files import encode, write_whole
from tests.unit.builders import a_cell, lab_cell, lab_record
from tests.unit.study_builder import StudyBuilder

COMMANDS = ("status", "list", "collect", "status --json", "logs")
JOB = "local-999999999-1"
ATTEMPT = Attempt(id=f"{JOB}.r0", job=JOB, started="2026-10-01T10:00:00+00:00")


def build(folder):
    """A study that ran on this machine: measured cells, and one that failed after 90 s."""
    builder = StudyBuilder(folder / "mine")
    for gpus in (1, 2):
        builder.with_record(lab_record(lab_cell(gpus, 128), 20.0 / gpus))
    builder.with_cell(a_cell(batch=64)).sent_as(JOB, batches=(64,))
    attempt = builder.folder(64).attempt(ATTEMPT.id)
    write_whole(attempt.about, encode(ATTEMPT))
    write_whole(builder.folder(64).current, ATTEMPT.id.encode())
    ended = "2026-10-01T10:01:30+00:00"
    about = Attempt(id=ATTEMPT.id, job=JOB, started=ATTEMPT.started, ended=ended)
    end = AttemptEnd(attempt=about, outcome=Outcome.FAILED, reason="rank 0: no")
    write_whole(attempt.end, encode(end))
    return builder


@pytest.mark.parametrize("seconds", [0, 1_000_000_000, 4_000_000_000])
def test_copied_study_says_the_same(laptop, capfd, seconds):
    build(laptop / "outputs")
    assert run(["collect", "mine"]) == 0
    capfd.readouterr()

    def said():
        for command in COMMANDS:
            name, *options = command.split()
            run([name, *([] if name == "list" else ["mine"]), *options])
        return capfd.readouterr()

    before = said()
    assert "failed rank 0: no" in before.out
    for path in (laptop / "outputs").rglob("*"):
        os.utime(path, (seconds, seconds))
    assert said() == before
