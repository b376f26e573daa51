"""A script in a job: its command; as a task of srun it has what srun gives, and no more."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hpml_jobs.core.cell import CellFile
from hpml_jobs.core.cluster import Shape
from hpml_jobs.core.script import Script, ScriptLauncher
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.job.script import (
    GIVEN,
    script_command,
    script_environment,
    task_environment,
)
from hpml_jobs.job.workers import Job, torchrun_command, worker_environment
from hpml_jobs.study.cell_folder import AttemptFolder
from tests.patience import PATIENCE_S
from tests.unit.builders import a_cell

SCRIPT = Script(path="srun_meets.py", args="{folder}", launcher=ScriptLauncher.SRUN)
SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def file() -> CellFile:
    cell = a_cell(gpus=2, script=SCRIPT, strategy=Strategy.DDP, device=Device.CPU)
    shape = Shape(
        nodes=1,
        gpus_per_node=2,
        gpu_type=None,
        cpus_per_node=6,
        mem_gb_per_node=None,
        minutes=2,
    )
    return CellFile(cell=cell, data_root="", code_root=str(SCRIPTS), shape=shape)


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptFolder:
    return AttemptFolder(tmp_path / "cell" / "attempts" / "local-812-1700000000.r0")


def test_tasks_meet_wherever_their_script_chooses(
    file: CellFile, attempt: AttemptFolder
) -> None:
    job = Job(id="local-812-1700000000", restart=0, node=0)
    before = worker_environment(file.cell) | script_environment(SCRIPT, file, attempt)
    command = script_command(
        SCRIPT, file, attempt, torchrun_command(file.cell, attempt, job)
    )
    run = subprocess.run(
        command,
        env=before,
        cwd=SCRIPTS,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    for way in ("variables: 1", "address: 1", "url: 1", "store: 1", "file: met"):
        assert run.stdout.count(way) == 2
    for rank in (0, 1):
        environment = json.loads((attempt.files / f"rank{rank}.json").read_text())
        added = {
            name for name in environment if name not in before and name[:5] != "SLURM"
        }
        assert added == {*GIVEN}
        assert environment["SLURM_PROCID"] == str(rank)
        assert environment["SLURM_JOBID"] == environment["SLURM_JOB_ID"] == "812"
        assert environment["SLURM_CPUS_PER_TASK"] == "3"


OF_TORCHRUN = {
    **{"RANK": "5", "LOCAL_RANK": "1", "GROUP_RANK": "1", "WORLD_SIZE": "8"},
    **{"LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "gr001", "MASTER_PORT": "4711"},
    **{
        "ROLE_NAME": "default",
        "TORCHELASTIC_ANYTHING_NEW": "1",
        "OMP_NUM_THREADS": "1",
    },
}


def test_task_has_the_variables_of_its_place() -> None:
    task = task_environment(
        OF_TORCHRUN | {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "gr002"}
    )
    assert (task["SLURM_PROCID"], task["SLURM_LOCALID"]) == ("5", "1")
    assert (task["SLURM_NODEID"], task["SLURM_NNODES"]) == ("1", "2")
    assert task["SLURM_TASKS_PER_NODE"] == "4(x2)"
    # SLURM's own stays
    assert (task["SLURM_JOB_ID"], task["SLURM_JOBID"]) == (
        "7",
        "7",
    )
    assert task["SLURMD_NODENAME"] == "gr002"
    assert {name for name in task if name[:5] != "SLURM"} == {*GIVEN, "OMP_NUM_THREADS"}


@pytest.mark.parametrize("launcher", [*ScriptLauncher])
def test_gpus_of_a_script_are_checked_on_each_node(tmp_path, launcher):
    script = Script(path="train.py", args="", launcher=launcher)
    file = CellFile(
        cell=a_cell(gpus=4, nodes=2, script=script), data_root="", code_root=""
    )
    attempt = AttemptFolder(tmp_path / "c" / "attempts" / "101_0.r0")
    command = script_command(script, file, attempt, [sys.executable, "torchrun"], 1)
    check = ["-m", "hpml_jobs.worker.devices", str(tmp_path / "c"), "101_0.r0"]
    assert command[:6] == [sys.executable, *check, "2"]
    assert command[6] == sys.executable
    assert command[-1] == "train.py"
