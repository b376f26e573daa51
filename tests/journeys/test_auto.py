"""A study with `auto` on the real SLURM: its jobs submit the next steps until it has its answer."""

import re

import pytest

pytestmark = pytest.mark.journey

OWN = (
    "gpus=auto",
    "max_gpus=2",
    "batch=auto",
    "workload=digits",
    "data.limit=2560",
    "protocol=lab",
    "minutes=12",
    "cluster.isolate=off",
    "loader_workers=0",
)


def wait_for_the_end(auto, login):
    """Wait for all steps, as a user does; return what the last follow-up job printed."""
    login.ok("collect", auto.study.name, "--wait")
    *_, closing = auto.study.history().closing
    return auto.study.slurm_log(closing, "closing").with_suffix(".err").read_text()


def test_study_goes_on_by_itself_until_it_has_its_answer(submit, login):
    auto = submit("auto", *OWN)
    assert "next step, after the batches of gpus=1" in login.ok("status", "auto")
    said = wait_for_the_end(auto, login)
    history = auto.study.history()
    assert (
        "auto: ended; 3 of 4 combinations of gpus and batch measured in 3 runs" in said
    )
    assert "completed: auto: ended; 3 of 4 combinations" in login.ok("status", "auto")
    assert len(history.sent) == 2  # the batches share a job
    cells = [record.cell for record in auto.records().values()]
    assert len({cell.batch for cell in cells if cell.gpus == 2}) == 1
    assert sorted(history.jobs) == sorted(auto.records())
    again = login.ok(*auto.words)
    assert '"cells": []' in again
    page = (auto.study.report / "report.md").read_text()
    assert re.search(r"Use [12] process(es)? of 1 thread at batch", page)


def test_cancelled_study_ends_and_the_same_command_goes_on(submit, login, rig):
    one = ("gpus=auto", "max_gpus=1", "batch=16", *OWN[3:])
    auto = submit("ended", *one, "+cluster.sbatch.hold=true")
    assert "the follow-up job" in login.ok("cancel", "ended")
    (closing,) = auto.study.history().closing
    assert rig.wait_for_state(closing, {"CANCELLED"}) == ["CANCELLED"]
    words = [word for word in auto.words if "hold" not in word]
    login.ok(*words)
    said = wait_for_the_end(auto, login)
    assert "1 of 1 combination" in said
