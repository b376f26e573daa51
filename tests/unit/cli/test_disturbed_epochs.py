"""A timed epoch that is disturbed is called so, through the command line on this machine."""

import json
import os
import re
import subprocess
import sys

import pytest

from hpml_jobs.study.study import Study
from tests.conftest import local_program

pytestmark = pytest.mark.long  # they decide by measured times

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

class Crowded(Slow):
    def act(self):
        open("crowded", "w").close()
        super().act()

def dataset(train):
    return TensorDataset(torch.zeros(160, 4), torch.zeros(160, dtype=torch.long))
"""
BUSY = """
import os, time
while not os.path.exists("crowded"):
    time.sleep(0.02)
end = time.monotonic() + 1.5
while time.monotonic() < end:
    pass
"""
MODELS = ("Stopped", "Slow", "Crowded")
WORDS = (
    "cluster=local",
    "device=cpu",
    "protocol=lab",
    "loader_workers=0",
    "batch=8",
    "study=mine",
)
CUSTOM = ("workload=custom", "workload.data=pauses:dataset")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The program, after a study of one cell per model."""
    program = local_program(tmp_path_factory.mktemp("disturbed"))
    (program.folder / "pauses.py").write_text(CODE)
    models = "workload.model=" + ",".join(f"pauses:{model}" for model in MODELS)
    busy = [
        subprocess.Popen([sys.executable, "-c", BUSY], cwd=program.folder)
        for _ in os.sched_getaffinity(0)
    ]
    try:
        program.ok("-m", *WORDS, *CUSTOM, models)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    return program


@pytest.fixture(scope="module")
def results(program):
    """By model: the record, and the reasons of checks that warned, by name."""
    states = json.loads(program.ok("status", "mine", "--json"))["cells"]
    checks = {state["slug"]: state["checks"] for state in states}
    found = {}
    for folder in Study(program.folder / "outputs" / "mine").cells():
        record = folder.read_record()
        reasons = {
            c["check"]: c["reason"] for c in checks[folder.slug] if c["level"] != "pass"
        }
        found[record.cell.workload.model.removeprefix("pauses:")] = record, reasons
    return found


def test_stopped_rank_is_named_with_its_seconds(results, program):
    record, warned = results["Stopped"]
    (moment,) = record.ranks[0].timed.scheduling.continued_s
    assert moment >= 1.5
    assert "rank 0 on " in warned["disturbed"]
    (stopped,) = re.findall(r"was stopped, for about [\d.]+ s", warned["disturbed"])
    # longer than asked for, where the process that ends it waits for a CPU
    assert float(stopped.split()[-2]) >= 1.5
    assert "(resubmit --disturbed)" in warned["disturbed"]
    shown = " ".join(program.ok("collect", "mine", "--all").split())
    assert stopped in shown


def test_slow_iteration_of_own_code_is_kept(results, program):
    record, _ = results["Slow"]
    slow = record.ranks[0].timed.slow
    assert slow.count >= 1
    assert slow.longest_s >= 1.5
    assert slow.longest_index == 6
    assert record.ranks[0].timed.scheduling.continued_s == ()
    assert f"{record.epoch_s:.4g}" in program.ok("collect", "mine", "--all")


def test_busy_processes_beside_a_cell_are_named(results):
    _, warned = results["Crowded"]
    assert "other processes used" in warned["disturbed"]
