"""Studies on a machine without SLURM: the same records and tables as with SLURM."""

import json
import os
import re
import signal
import subprocess
import sys

from hpml_jobs.study.study import Study
from tests.conftest import local_program
from tests.patience import PATIENCE_S, wait_until
from tests.rig.processes import alive_processes_of

QUICK = ("protocol=lab", "loader_workers=0")
HERE = ("cluster=local", "device=cpu", "workload=digits", "data.limit=512", *QUICK)

CODE = """
import time
import torch
from torch.utils.data import TensorDataset

class Faulty(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 10)
    def forward(self, x):
        {act}
        return self.body(x)

def dataset(train):
    return TensorDataset(torch.zeros(2560, 4), torch.zeros(2560, dtype=torch.long))
"""


def study_with_faulty_model(program, act):
    """A study of one cell whose model does `act` in its first forward."""
    (program.folder / "faulty.py").write_text(CODE.format(act=act))
    words = (
        "workload=custom",
        "workload.model=faulty:Faulty",
        "workload.data=faulty:dataset",
    )
    return (*words, "cluster=local", "device=cpu", *QUICK, "batch=8")


def test_local_study_runs_collects_and_is_not_rerun(tmp_path):
    """In a folder of an unusual name."""
    folder = tmp_path / "it's a $(folder) with; ünïcode"
    folder.mkdir()
    program = local_program(folder)
    shown = program.ok("-m", "gpus=1,2", "batch=64", *HERE, "collect_after=true")
    assert len(list(program.folder.rglob("report/report.md"))) == 1
    first, last = (line for line in shown.splitlines() if re.match("  ./2  ", line))
    cell = r"(1 process|2 processes), batch 64"
    assert re.fullmatch(rf"  1/2  {cell}   epoch [\d.]+ s   \(about .* left\)", first)
    assert re.fullmatch(rf"  2/2  {cell}   epoch [\d.]+ s", last)
    again = json.loads(program.ok("-m", "gpus=1,2", "batch=64", *HERE, "--json"))
    assert again["cells"] == []
    tables = program.ok("collect")
    assert "2-process" in tables
    states = json.loads(program.ok("status", "--json", "--strict"))
    assert [state["outcome"] for state in states["cells"]] == ["ok", "ok"]
    assert "2 cells: 2 ok" in program.ok("status", "--watch")


def test_auto_measures_until_it_has_the_answer_and_prints_it(program):
    """Its batches end at the first that is out of memory."""
    *model, _ = study_with_faulty_model(
        program, "torch.empty(2**50 if self.training and len(x) > 64 else 1)"
    )
    words = ("gpus=auto", "max_gpus=2", "batch=auto", *model)
    shown = program.ok(*words)
    assert (
        "3 of 4 combinations of gpus and batch measured in 3 runs"
        in program(*words).stderr
    )
    assert re.search(
        r"^Use [12] process(es)? of 1 thread at batch 32", shown, re.MULTILINE
    )
    cells = json.loads(program.ok("status", "--json"))["cells"]
    states = {(*c["slug"].split("-")[1:3],): c["outcome"] for c in cells}
    assert states == {
        ("1proc", "b32"): "ok",
        ("1proc", "b128"): "oom",
        ("2proc", "b32"): "ok",
    }
    assert "OOM" in program.ok("collect", "--all")


def test_template_command_runs_one_cell(program):
    program.ok("run", "gpus=1", "batch=64", *HERE)
    (path,) = program.folder.glob("**/cells/*/record.json")
    startup = json.loads(path.read_bytes())["ranks"][0]["startup"]
    steps = ("launch_s", "imports_s", "process_group_s")
    assert min(startup[step] for step in steps) > 0
    again = program.ok("run", "-m", "--index", "0", "gpus=1", "batch=64,128", *HERE)
    assert "already measured" in again


def test_local_failure_exits_1_and_logs_give_reason(program):
    done = program(*study_with_faulty_model(program, 'raise ValueError("a bad day")'))
    assert done.returncode == 1
    assert done.stderr.endswith(
        "1 of 1 cells did not finish; to see why:\nhpml-jobs logs custom-local\n"
    )
    assert "ValueError: a bad day" in program.ok("logs")
    (state,) = json.loads(program.ok("status", "--json"))["cells"]
    assert state["outcome"] == "failed"
    assert "rank 0: ValueError: a bad day" in state["reason"]
    assert "failed: rank 0: ValueError: a bad day" in program.ok("collect")


def test_local_interrupt_leaves_no_process_and_reports_cells(program):
    words = study_with_faulty_model(program, "time.sleep(600)")
    running = subprocess.Popen(
        [sys.executable, "-m", "hpml_jobs", *words, "study=interrupted"],
        cwd=program.folder,
        env=program.environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # a shell's background job, as CI may be, ignores SIGINT, and so would its children
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 (no threads)
    )
    study = Study(program.folder / "outputs" / "interrupted")
    wait_until(
        lambda: any(study.root.glob("cells/*/attempts/*/progress.json")),
        "the cell has begun",
        has_ended=lambda: running.poll() is not None,
    )
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does
    _, messages = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 130
    *_, sentence, command = messages.splitlines()
    assert (
        sentence == "hpml-jobs: interrupted; to run the cells that have not finished:"
    )
    assert command.startswith("hpml-jobs ")
    assert "study=interrupted" in command
    assert "Traceback" not in messages
    wait_until(
        lambda: not alive_processes_of(str(study.cells_folder)), "every process ends"
    )
    (state,) = json.loads(program.ok("status", "interrupted", "--json"))["cells"]
    assert state["outcome"] == "cancelled"
