"""A timed epoch that is disturbed is called so, through the command line on this machine."""

import json
import os
import subprocess
import sys

import pytest

from hpml_jobs.study.study import Study

CODE = """
import os, subprocess, sys, time
import torch
from torch.utils.data import TensorDataset

STOP = "import os, signal, sys, time; rank = int(sys.argv[1]); os.kill(rank, signal.SIGSTOP); "
STOP += "time.sleep(1.5); os.kill(rank, signal.SIGCONT)"

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 10)
        self.iterations = 0
    def forward(self, x):
        self.iterations += self.training
        if self.training and self.iterations == 20 + 7:  # in the timed epoch
            self.act()
        return self.body(x)
    def act(self):
        pass

class Stopped(Model):
    def act(self):
        subprocess.run([sys.executable, "-c", STOP, str(os.getpid())], check=True)

class Slow(Model):
    def act(self):
        time.sleep(1.5)

def dataset(train):
    return TensorDataset(torch.zeros(160, 4), torch.zeros(160, dtype=torch.long))
"""
WORDS = ("cluster=local", "device=cpu", "protocol=lab", "loader_workers=0", "batch=8", "study=mine")


@pytest.fixture
def run_model(program):
    """Run a cell of a model; return its record and the reasons of checks that warned, by name."""
    (program.folder / "pauses.py").write_text(CODE)

    def run(model):
        program.ok(
            *WORDS,
            "workload=custom",
            f"workload.model=pauses:{model}",
            "workload.data=pauses:dataset",
            "try_batch=false",
        )
        (folder,) = Study(program.folder / "outputs" / "mine").cells()
        (state,) = json.loads(program.ok("status", "mine", "--json"))["cells"]
        checks = state["checks"]
        return folder.read_record(), {
            check["check"]: check["reason"] for check in checks if check["level"] != "pass"
        }

    return run


def test_stopped_rank_is_named_with_its_seconds(run_model, program):
    record, warned = run_model("Stopped")
    (moment,) = record.ranks[0].timed.scheduling.continued_s
    assert moment >= 1.5
    assert "rank 0 on " in warned["disturbed"]
    assert "was stopped, for about 1." in warned["disturbed"]
    assert "resubmit STUDY --disturbed" in warned["disturbed"]
    assert "was stopped" in program.ok("collect", "mine")


def test_slow_iteration_of_own_code_is_flagged_and_kept(run_model, program):
    record, warned = run_model("Slow")
    slow = record.ranks[0].timed.slow
    assert slow.count >= 1
    assert slow.longest_s >= 1.5
    assert slow.longest_index == 6
    assert record.ranks[0].timed.scheduling.continued_s == ()
    # other load on this machine is an outside cause, and then the one that is named
    assert warned.keys() & {"outliers", "disturbed"}
    assert f"{record.epoch_s:.4g}" in program.ok("collect", "mine")


def test_busy_processes_beside_a_cell_are_named(run_model):
    hogs = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in os.sched_getaffinity(0)
    ]
    try:
        _, warned = run_model("Slow")
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert "other processes used" in warned["disturbed"]
