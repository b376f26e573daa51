"""The workers of one attempt on one node: their command, environment, signals and end."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from hpml_jobs.core.cell import Cell, CellFile
from hpml_jobs.core.process_times import process_started_s
from hpml_jobs.core.processes import (
    Orphans,
    die_with_parent,
    ignore_submitit_signal,
    request_stacks,
)
from hpml_jobs.core.stack_files import HOST_VARIABLE, STACK_SIGNAL
from hpml_jobs.job.script import script_command, script_environment
from hpml_jobs.slurm import commands
from hpml_jobs.slurm.commands import about_allocation, scrubbed
from hpml_jobs.slurm.jobs import is_slurm
from hpml_jobs.study.cell_folder import (
    JOB_STARTED_VARIABLE,
    SLURM_VARIABLE,
    AttemptFolder,
    CellFolder,
)

JOB_VARIABLE = "HPML_JOBS_JOB"
"""Environment variable with the job's name in a local run."""

NODE_VARIABLE = "HPML_JOBS_NODE"
"""Environment variable with the index of this host among those of `cluster=ssh`."""

RENDEZVOUS_PORTS = range(20_000, 32_000)
"""Ports of torchrun's rendezvous between nodes: below Linux's ephemeral range (from 32768).

The job's id selects the port, so that two jobs on one node do not collide.
"""


class Job(NamedTuple):
    """The job that this process runs in, and the index of this node in it."""

    id: str
    restart: int
    node: int

    @classmethod
    def current(cls) -> "Job":
        """Read the job from the environment, before SLURM's variables are removed."""
        env = os.environ
        if JOB_VARIABLE in env:  # a local run, even if it is inside an allocation
            node = int(env.get(NODE_VARIABLE, "0"))
            return cls(id=env[JOB_VARIABLE], restart=0, node=node)
        array, task = env.get("SLURM_ARRAY_JOB_ID"), env.get("SLURM_ARRAY_TASK_ID")
        slurm_id = f"{array}_{task}" if array and task else env.get("SLURM_JOB_ID")
        return cls(
            id=slurm_id or f"here-{os.getpid()}-{int(time.time())}",
            restart=int(env.get("SLURM_RESTART_COUNT") or 0),
            node=int(env.get("SLURM_NODEID") or 0),
        )


def worker_command(
    cell: Cell, folder: Path, attempt: AttemptFolder, job: Job
) -> list[str]:
    """Return the command of the workers: a plain process for single and dp, else torchrun."""
    worker = ["hpml_jobs.worker", str(folder), attempt.id]
    if not cell.strategy.under_torchrun:
        return [sys.executable, "-m", *worker]
    return [*torchrun_command(cell, attempt, job), "-m", *worker]


def torchrun_command(cell: Cell, attempt: AttemptFolder, job: Job) -> list[str]:
    """Return the beginning of the command by which torchrun starts the processes of this node."""
    return [
        *(sys.executable, "-m", "hpml_jobs.worker.agent"),
        *_rendezvous(cell, job),
        *("--nproc-per-node", str(cell.processes // cell.nodes), "--max-restarts=0"),
        *("--log-dir", str(attempt.ranks), "--redirects", "3", "--tee", "3"),
    ]


def _rendezvous(cell: Cell, job: Job) -> list[str]:
    """Return torchrun's options by which the processes find each other: c10d on the first node."""
    if cell.nodes == 1:
        return ["--standalone", "--local-addr=127.0.0.1"]
    first_host = commands.hosts_of_job()[0]
    # SLURM's name of this node is one that the others resolve; getfqdn's need not be.
    name = os.environ.get("SLURMD_NODENAME")
    job_number = int(re.sub(r"\D", "", os.environ.get("SLURM_JOB_ID", job.id)) or 0)
    port = RENDEZVOUS_PORTS[job_number % len(RENDEZVOUS_PORTS)]
    return [
        f"--nnodes={cell.nodes}",
        *([f"--local-addr={name}"] if name else []),
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={first_host}:{port}",
        f"--rdzv-id={job.id}_{job.restart}",
        f"--rdzv-conf=is_host={int(job.node == 0)},read_timeout=300,join_timeout=900",
    ]


def worker_environment(cell: Cell) -> dict[str, str]:
    """Return the job's environment without SLURM's variables, which torch would act on.

    Threads per process are equal in every cell. The allocation's variables are passed on as JSON,
    for the facts in the record.
    """
    return scrubbed(dict(os.environ), inside_job=True) | {
        "OMP_NUM_THREADS": str(cell.threads),
        "MKL_NUM_THREADS": str(cell.threads),
        "PYTHONUNBUFFERED": "1",
        SLURM_VARIABLE: json.dumps(about_allocation(os.environ)),
        JOB_STARTED_VARIABLE: str(process_started_s() or ""),
        HOST_VARIABLE: os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
    }


class Callbacks(NamedTuple):
    """What `run_workers` calls: after the fork of the workers, and when SIGTERM comes.

    Before `on_start` this process must not have threads, since a child runs Python after the fork.
    """

    on_start: Callable[[], None]
    on_stop: Callable[[], None]


def run_workers(
    file: CellFile,
    folder: CellFolder,
    attempt: AttemptFolder,
    job: Job,
    callbacks: Callbacks,
) -> tuple[int, bool]:
    """Run the workers and pass SIGTERM on; return their exit code, and whether SIGTERM came.

    Before SIGTERM, and where SLURM announces the time limit, all ranks and DataLoader workers of
    this node write their stacks. Without SLURM an alarm ends the workers at the time limit. With
    the workers all processes end that they have started, also those that left them.
    """
    log = attempt.log_of(job.node)
    stopped = False
    cell, script = file.cell, file.cell.script
    environment = worker_environment(cell)
    if script is None:
        command = worker_command(cell, folder.root, attempt, job)
    else:  # on one GPU too under torchrun, whose variables it may read
        torchrun = torchrun_command(cell, attempt, job)
        command = script_command(script, file, attempt, torchrun, job.node)
        environment |= script_environment(script, file, attempt)
    orphans = Orphans()
    with log.open("ab") as output:
        workers = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=file.code_root if script else None,
            preexec_fn=_prepare_process,  # noqa: PLW1509  (no threads here yet)
        )

        def pass_on(_signal: int, _frame: FrameType | None) -> None:
            nonlocal stopped
            if not stopped:
                stopped = True
                request_stacks(os.getpid())
                callbacks.on_stop()
                workers.terminate()  # once: a second SIGTERM interrupts torchrun's own shutdown

        def reap(_signal: int, _frame: FrameType | None) -> None:
            orphans.reap()

        def write_stacks(_signal: int, _frame: FrameType | None) -> None:
            request_stacks(os.getpid())

        orphans.others.add(workers.pid)
        before = {
            number: signal.signal(number, handler)
            for number, handler in (
                (signal.SIGTERM, pass_on),
                (signal.SIGALRM, pass_on),
                (STACK_SIGNAL, write_stacks),
                (signal.SIGCHLD, reap),
            )
        }
        if file.shape and not is_slurm(job.id):
            signal.alarm(60 * file.shape.minutes)
        try:
            callbacks.on_start()
            return workers.wait(), stopped
        finally:
            signal.alarm(0)
            # interrupted: no process of a cell outlives its job
            if workers.poll() is None:
                workers.terminate()
                workers.wait()
            orphans.end()
            for number, handler in before.items():
                signal.signal(number, handler)


def _prepare_process() -> None:
    """Prepare torchrun, or a single worker, before it starts; ranks catch STACK_SIGNAL again."""
    die_with_parent()
    ignore_submitit_signal()
