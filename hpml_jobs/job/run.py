"""What a job runs on its node: the cell's workers, until a record or a reason is there."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from hpml_jobs import __version__
from hpml_jobs.core.cell import Cell, CellFile
from hpml_jobs.core.processes import die_with_parent, ignore_submitit_signal
from hpml_jobs.core.record import Attempt
from hpml_jobs.errors import HpmlError
from hpml_jobs.job.end import (
    close_before,
    finished,
    judge,
    killed_ranks,
    over_its_limit,
    publish,
)
from hpml_jobs.slurm import commands
from hpml_jobs.slurm.environment import about_allocation, scrubbed
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.study.attempt import (
    HOST_VARIABLE,
    SLURM_VARIABLE,
    AttemptEnd,
    AttemptFolder,
    utc_now,
)
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.study.files import encode, write_whole

OOM_CODE = 3
"""Exit code of a cell on its own (not under submitit) that ran out of memory."""

JOB_VARIABLE = "HPML_JOBS_JOB"
"""Names the job of a local run."""

FILE_LAG_S = 20
"""How long a file of another node is waited for."""


class Job(NamedTuple):
    """The job this process runs in, and which of its nodes this is."""

    id: str
    restart: int
    node: int

    @classmethod
    def here(cls) -> "Job":
        """Read from the environment, before it is scrubbed."""
        env = os.environ
        if JOB_VARIABLE in env:  # a local run, even where it stands inside an allocation
            return cls(id=env[JOB_VARIABLE], restart=0, node=0)
        array, task = env.get("SLURM_ARRAY_JOB_ID"), env.get("SLURM_ARRAY_TASK_ID")
        identity = f"{array}_{task}" if array and task else env.get("SLURM_JOB_ID")
        return cls(
            id=identity or f"here-{os.getpid()}-{int(time.time())}",
            restart=int(env.get("SLURM_RESTART_COUNT") or 0),
            node=int(env.get("SLURM_NODEID") or 0),
        )


def run_cell(folder: str) -> None:
    """The function that submitit runs: exit code 0 for a finished cell, else 1."""
    die_with_parent()
    ignore_submitit_signal()
    end = attempt_cell(CellFolder(Path(folder)))
    sys.exit(0 if end.outcome.finished else 1)


def attempt_cell(folder: CellFolder) -> AttemptEnd:
    """Measure a cell on this node; a valid record is left alone, a requeued cell starts over."""
    job = Job.here()
    identity = f"{job.id}.r{job.restart}"
    attempt = Attempt(id=identity, job=job.id, restart=job.restart, started=utc_now())
    file = folder.read()
    done = finished(folder, file)
    if done is not None:
        print(f"{folder.slug}: measured already by {done.attempt.id}, nothing to do")  # noqa: T201
        return AttemptEnd(attempt=done.attempt, outcome=done.outcome, reason=done.reason)
    paths = folder.attempt(attempt.id)
    paths.errors.mkdir(parents=True, exist_ok=True)
    if job.node == 0:
        close_before(folder, attempt)
        write_whole(paths.about, encode(attempt))
        write_whole(folder.current, attempt.id.encode())
    began = time.monotonic()
    try:
        _check_version(file)
        ended, stopped = _run_workers(file.cell, folder, paths, job)
        if file.cell.nodes > 1 and not stopped:
            _await_other_nodes(paths, ended)
        torchrun = file.cell.strategy.under_torchrun
        end = judge(attempt, paths, ended, stopped=stopped, torchrun=torchrun)
        end = over_its_limit(end, file, time.monotonic() - began)
    except HpmlError as fault:
        end = AttemptEnd(attempt=attempt, outcome=Outcome.FAILED, reason=str(fault))
    if job.node == 0:
        end = publish(folder, file, paths, end)
        write_whole(paths.end, encode(end))
        print(f"{folder.slug}: {end.outcome.value} {end.reason or ''} (log: {paths.log_of(0)})")  # noqa: T201
    return end


def _await_other_nodes(paths: AttemptFolder, code: int) -> None:
    """Give a shared file system time to show what another node wrote: a record, or an error."""
    deadline = time.monotonic() + FILE_LAG_S
    while time.monotonic() < deadline:
        if paths.record.exists() if code == 0 else paths.rank_errors() or killed_ranks(paths):
            return
        time.sleep(0.5)


def _check_version(file: CellFile) -> None:
    if file.hpml_jobs != __version__:
        raise HpmlError(
            f"submitted by hpml_jobs {file.hpml_jobs}, this job's Python ({sys.executable}) has "
            f"{__version__}: install {file.hpml_jobs} there, or submit again"
        )


def worker_command(cell: Cell, folder: Path, attempt: AttemptFolder, job: Job) -> list[str]:
    """One plain process for single and dp; torchrun for the rest, standalone on one node."""
    worker = ["hpml_jobs.worker", str(folder), attempt.id]
    if not cell.strategy.under_torchrun:
        return [sys.executable, "-m", *worker]
    return [
        *(sys.executable, "-m", "torch.distributed.run"),
        *_rendezvous(cell, job),
        *("--nproc-per-node", str(cell.gpus_per_node), "--max-restarts=0"),
        *("--log-dir", str(attempt.ranks), "--redirects", "3", "--tee", "3"),
        *("-m", *worker),
    ]


def _rendezvous(cell: Cell, job: Job) -> list[str]:
    if cell.nodes == 1:
        return ["--standalone", "--local-addr=127.0.0.1"]
    first = commands.hosts_of_job()[0]
    number = int(re.sub(r"\D", "", os.environ.get("SLURM_JOB_ID", "0")) or 0)
    return [
        f"--nnodes={cell.nodes}",
        f"--node-rank={job.node}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={first}:{20000 + number % 12000}",
        f"--rdzv-id={job.id}_{job.restart}",
        f"--rdzv-conf=is_host={int(job.node == 0)},read_timeout=300,join_timeout=900",
    ]


def worker_environment(cell: Cell) -> dict[str, str]:
    """The job's environment without what it leaks; equal threads per process in every cell.

    What SLURM tells of the allocation travels as JSON, for the record's facts.
    """
    return scrubbed(dict(os.environ), inside_job=True) | {
        "OMP_NUM_THREADS": str(cell.threads),
        "MKL_NUM_THREADS": str(cell.threads),
        "PYTHONUNBUFFERED": "1",
        SLURM_VARIABLE: json.dumps(about_allocation(os.environ)),
        HOST_VARIABLE: os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
    }


def _run_workers(
    cell: Cell, folder: CellFolder, attempt: AttemptFolder, job: Job
) -> tuple[int, bool]:
    """Start the workers, pass SIGTERM on, wait: the exit code, and whether we were stopped."""
    log = attempt.log_of(job.node)
    stopped = False
    command = worker_command(cell, folder.root, attempt, job)
    environment = worker_environment(cell)
    with log.open("ab") as output:
        workers = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            preexec_fn=die_with_parent,  # noqa: PLW1509  (no threads here yet)
        )

        def pass_on(_signal: int, _frame: FrameType | None) -> None:
            nonlocal stopped
            stopped = True
            workers.terminate()

        before = signal.signal(signal.SIGTERM, pass_on)
        try:
            return workers.wait(), stopped
        finally:
            if workers.poll() is None:  # interrupted: nothing of a cell outlives its job
                workers.terminate()
                workers.wait()
            signal.signal(signal.SIGTERM, before)


def main() -> None:
    """Measure the cell in the folder of argv[1]; exit code 0 ok, 3 out of memory, else 1."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a local run's Ctrl-C: the launcher ends us
    ignore_submitit_signal()
    end = attempt_cell(CellFolder(Path(sys.argv[1])))
    sys.exit({Outcome.OK: 0, Outcome.OOM: OOM_CODE}.get(end.outcome, 1))
