"""A script of the user in a job: its command, its environment, and the record of what was seen."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hpml_jobs.core.cell import CellFile
from hpml_jobs.core.environment import refusal
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.script import Merged, Script, ScriptLauncher
from hpml_jobs.core.source_files import changed_files, refuse_changed
from hpml_jobs.core.stack_files import RANK_VARIABLE
from hpml_jobs.core.strategies import Device
from hpml_jobs.slurm.commands import HOSTS_VARIABLE, LEAKING
from hpml_jobs.study.cell_folder import OBSERVE_VARIABLE, AttemptFolder

SITE = Path(__file__).parents[1] / "worker" / "observer" / "site"
"""The folder whose sitecustomize.py every Python below the script's command runs first."""

GIVEN = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE")
"""What the script of a job exports before srun."""

_OWN_PORT = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""With it torchrun finds a free MASTER_PORT, on which it serves no store itself."""

_ASYNC = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
"""A variable that torchrun sets to 1 if the user has not set it."""


def script_command(
    script: Script,
    file: CellFile,
    attempt: AttemptFolder,
    torchrun: Sequence[str],
    node: int = 0,
) -> list[str]:
    """Return the command of a script, below `torchrun` unless it starts its processes itself.

    With device=cuda it begins with the check of this node's GPUs, as a rank of a cell does.

    Raises:
        HpmlError: the script or a local module that it imports was changed since submission, or
            the environment changes what is measured.
    """
    cell = file.cell
    refuse_changed(changed_files(cell.workload.code, file.import_root))
    if refused := refusal(os.environ, cell.device, communicates=cell.processes > 1):
        raise HpmlError(refused)
    attempt.files.mkdir(parents=True, exist_ok=True)
    values = {
        "batch": cell.batch,
        "gpus": cell.gpus,
        "nodes": cell.nodes,
        "global_batch": cell.global_batch,
        "seed": cell.seed,
        "folder": attempt.files,
    }
    command = script.command({name: str(value) for name, value in values.items()})
    first_rank = str(node * cell.processes // cell.nodes)
    check = [
        "-m",
        "hpml_jobs.worker.devices",
        str(attempt.cell_folder),
        attempt.id,
        first_rank,
    ]
    checked = [sys.executable, *check] if cell.device is Device.CUDA else []
    if script.launcher is ScriptLauncher.PYTHON:
        return [*checked, sys.executable, *command]
    task = (
        ["-m", "hpml_jobs.job.script"] if script.launcher is ScriptLauncher.SRUN else []
    )
    # after --, torchrun takes no option of the script for its own
    return [*checked, *torchrun, "--", *task, *command]


def script_environment(
    script: Script, file: CellFile, attempt: AttemptFolder
) -> dict[str, str]:
    """Return the variables by which the processes of a script are observed, and SLURM's for srun.

    The observer comes first on Python's path, before what is there already.
    """
    folders = (str(SITE), os.environ.get("PYTHONPATH"))
    path = os.pathsep.join(filter(None, folders))
    observed = {"PYTHONPATH": path, OBSERVE_VARIABLE: str(attempt.root.resolve())}
    if script.launcher is ScriptLauncher.PYTHON and file.cell.processes == 1:
        return observed | {RANK_VARIABLE: "0"}
    if script.launcher is not ScriptLauncher.SRUN:
        return observed
    slurm = {
        name: value for name, value in os.environ.items() if name.startswith("SLURM")
    }
    per_node = file.cell.processes // file.cell.nodes
    cpus = file.shape.cpus_per_node // per_node if file.shape else file.cell.threads
    of_task = {"SLURM_CPUS_PER_TASK": str(max(1, cpus)), _OWN_PORT: "1"}
    return _outside_of_slurm(attempt) | slurm | of_task | observed


def _outside_of_slurm(attempt: AttemptFolder) -> dict[str, str]:
    """Return the variables of a job where SLURM does not set them."""
    number = re.search(r"\d+", attempt.job)
    outside = {"SLURM_JOB_ID": number[0] if number else "0"}
    if hosts := os.environ.get(HOSTS_VARIABLE, "").split():
        outside["SLURM_JOB_NODELIST"] = ",".join(hosts)
    return outside


def task_environment(environment: dict[str, str]) -> dict[str, str]:
    """Return the environment of a task of srun, from that of a process of torchrun.

    Nothing of torchrun's agent is left, whose store serves another port than a script may choose.
    """
    of_agent = {_OWN_PORT} | {name for name in environment if LEAKING.match(name)} - {
        *GIVEN
    }
    if environment.get(_ASYNC) == "1":
        of_agent.add(_ASYNC)
    kept = {
        name: value
        for name, value in environment.items()
        if name not in of_agent or name.startswith("SLURM")
    }
    return kept | task_variables(environment)


def merge_observed(attempt: AttemptFolder, log: Path) -> Merged:
    """Write the attempt's record from what its processes saw; the note goes to its log too."""
    merge = [
        "-m",
        "hpml_jobs.worker.observer",
        str(attempt.cell_folder),
        attempt.id,
    ]
    done = subprocess.run(
        [sys.executable, *merge], capture_output=True, text=True, check=False
    )
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    if done.returncode:
        unknown = f"no record was written (exit code {done.returncode})"
        return Merged(fault=lines[-1] if lines else unknown)
    note = done.stdout.strip()
    if note:
        with log.open("a") as file:
            file.write(f"hpml-jobs: {note}\n")
    return Merged(note=note)


def task_variables(environment: dict[str, str]) -> dict[str, str]:
    """Return the variables of a task and of its step, from torchrun's, as srun's manual has them.

    Outside of SLURM also those of its job. The call is of the task itself.
    """
    per_node = environment["LOCAL_WORLD_SIZE"]
    nodes = int(environment["WORLD_SIZE"]) // int(per_node)
    tasks = per_node if nodes == 1 else f"{per_node}(x{nodes})"
    job, node = environment["SLURM_JOB_ID"], environment["MASTER_ADDR"]
    names = environment.get("SLURM_JOB_NODELIST", node)
    always = {
        "SLURM_PROCID": environment["RANK"],
        "SLURM_LOCALID": environment["LOCAL_RANK"],
        "SLURM_NODEID": environment["GROUP_RANK"],
        "SLURM_NTASKS": environment["WORLD_SIZE"],
        "SLURM_NPROCS": environment["WORLD_SIZE"],
        "SLURM_NTASKS_PER_NODE": per_node,
        "SLURM_TASKS_PER_NODE": tasks,
    }
    of_job = {
        "SLURM_GPUS_ON_NODE": per_node,
        "SLURM_NNODES": str(nodes),
        "SLURM_JOBID": job,
        "SLURM_JOB_NODELIST": names,
        "SLURM_NODELIST": names,
        "SLURMD_NODENAME": node,
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NODELIST": names,
    }
    return {k: value for k, value in of_job.items() if k not in environment} | always


# a process of torchrun becomes a task of srun, and then the script
if __name__ == "__main__":
    command = [sys.executable, *sys.argv[1:]]
    os.execve(sys.executable, command, task_environment(dict(os.environ)))  # noqa: S606  (no shell)
