"""What a cluster does to cells: states are told as they are, and no process is left."""

import json
import time
from collections.abc import Callable

import pytest

from hpml_jobs.study import Happening
from tests.conftest import Program
from tests.journeys.conftest import HERE
from tests.rig import Rig

pytestmark = pytest.mark.journey

OWN = ("gpus=2", "batch=16", "workload=custom", "workload.data=owncode:dataset")
SIDE_BY_SIDE = ("cluster.isolate=off",)


def wait_until(true: Callable[[], object], timeout_s: float, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.5)


def nothing_left(sent) -> None:
    wait_until(lambda: not sent.alive(), 20, f"no process of {sent.name} is alive")


@pytest.fixture(scope="module")
def faulty(send):
    """All faults at once: they wait for each other on SLURM's slow clock, not on the processor."""

    def start(name: str, model: str, *more: str):
        words = (*OWN, f"workload.model=owncode:{model}", *SIDE_BY_SIDE, "protocol=lab", *more)
        return send(name, *words)

    return {
        "timeout": start("timeout", "Sleeps", "minutes=1"),
        "preempted": start(
            "preempted",
            "SleepsOnce",
            "cluster.partition=preempt",
            "+cluster.sbatch.nodelist=gv001",
            "gpu_type=v100",
        ),
        "cancelled": start("cancelled", "Sleeps"),
        "failing": start("failing", "Raises"),
        "killed": start("killed", "Killed"),
    }


def test_a_failing_cell_is_failed_and_says_why(faulty, desk: Program, rig: Rig) -> None:
    sent = faulty["failing"]
    (state,) = sent.wait().values()
    assert rig.wait_for_state(sent.job, {"FAILED"}) == ["FAILED"]
    assert state["outcome"] == "failed"
    assert "rank 1: ValueError: this model cannot count" in state["reason"]
    shown = desk.ok("logs", "failing")
    assert "rank 1 failed first" in shown
    assert "this model cannot count" in shown
    assert "owncode.py" in shown
    assert not sent.records()
    nothing_left(sent)


def test_a_rank_killed_by_a_signal_is_failed_and_names_it(faulty, rig: Rig) -> None:
    sent = faulty["killed"]
    (state,) = sent.wait().values()
    assert rig.wait_for_state(sent.job, {"FAILED"}) == ["FAILED"]
    assert state["outcome"] == "failed"
    assert "rank 1 killed by signal 9 (out of memory?)" in state["reason"]
    nothing_left(sent)


def test_scancel_is_cancelled(faulty, rig: Rig) -> None:
    sent = faulty["cancelled"]
    wait_until(lambda: len(sent.alive()) > 2, 180, "the workers are running")
    assert rig.run("scancel", sent.job).returncode == 0
    assert rig.wait_for_state(sent.job, {"CANCELLED"}) == ["CANCELLED"]
    nothing_left(sent)
    (state,) = sent.wait().values()
    assert state["outcome"] == "cancelled"
    assert not sent.records()


def test_a_preempted_cell_is_requeued_and_leaves_one_record(faulty, desk: Program, rig: Rig):
    sent = faulty["preempted"]
    wait_until((desk.folder / "slept").exists, 180, "the first attempt is in its first iteration")
    taken = rig.sbatch(
        "--partition=main", "--nodelist=gv001", "--gres=gpu:v100:2", "--time=5", script="sleep 2"
    )
    rig.wait_for_state(taken, {"COMPLETED"}, timeout_s=180)
    (state,) = sent.wait(timeout_s=300).values()
    assert state["outcome"] == "ok"
    (record,) = sent.records().values()
    assert record.attempt.restart == 1
    states = [row["State"] for row in rig.sacct(sent.job, "State", duplicates=True)]
    assert states == ["PREEMPTED", "COMPLETED"]
    (slug,) = sent.jobs
    attempts = sorted(p.name for p in sent.study.cell(slug).attempts.iterdir() if p.is_dir())
    assert attempts == [f"{sent.job}.r0", f"{sent.job}.r1"]
    nothing_left(sent)


def test_a_cell_over_its_time_limit_is_timeout(faulty, rig: Rig) -> None:
    sent = faulty["timeout"]
    assert rig.wait_for_state(sent.job, {"TIMEOUT"}, timeout_s=300) == ["TIMEOUT"]
    nothing_left(sent)
    (state,) = sent.wait().values()
    assert state["outcome"] == "timeout"
    assert not sent.records()


def test_a_refused_sbatch_is_an_error_with_slurms_words(send, desk: Program) -> None:
    words = (*OWN, "workload.model=owncode:build", "cluster=rig", "study=refused")
    config = ("--config-dir", str(HERE / "conf"))
    done = desk(*words, *config, "cluster.account=refused")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "sbatch refused 1 cell (1 node x 2 rtx8000" in last
    assert "has no allocation here" in last
    study = desk.folder / "outputs" / "refused"
    lines = [json.loads(line) for line in (study / "manifest.jsonl").read_text().splitlines()]
    assert [line["happening"] for line in lines] == [Happening.SENDING, Happening.REFUSED]
    # nothing is lost: the same command without the fault sends it
    again = json.loads(desk.ok(*words, *config, "--json"))
    assert [row["why"] for row in again["cells"]] == ["not sent yet"]
