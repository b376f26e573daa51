"""Run one attempt of a cell on its node: start the workers, wait, judge and publish the result."""

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

import msgspec

from hpml_jobs import __version__
from hpml_jobs.core.cell import Cell, CellFile
from hpml_jobs.core.processes import (
    STACK_SIGNAL,
    die_with_parent,
    ignore_submitit_signal,
    request_stacks,
)
from hpml_jobs.core.record import Attempt, Neighbours
from hpml_jobs.errors import HpmlError
from hpml_jobs.job.disk import (
    NoSpaceError,
    explained,
    print_safely,
    release,
    reserve,
    with_disk_reason,
)
from hpml_jobs.job.end import (
    apply_time_limit,
    close_previous,
    finished_record,
    judge,
    killed_ranks,
    publish,
    stopped_end,
)
from hpml_jobs.slurm import commands
from hpml_jobs.slurm.environment import about_allocation, scrubbed
from hpml_jobs.slurm.neighbours import neighbour_jobs
from hpml_jobs.slurm.states import NO_SPACE_CODE, Outcome
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
"""Exit code of a cell that ran out of memory, where it does not run under submitit."""

JOB_VARIABLE = "HPML_JOBS_JOB"
"""Environment variable with the job's name in a local run."""

FILE_LAG_S = 20
"""How long a shared file system may take to show a file of another node."""

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
            return cls(id=env[JOB_VARIABLE], restart=0, node=0)
        array, task = env.get("SLURM_ARRAY_JOB_ID"), env.get("SLURM_ARRAY_TASK_ID")
        slurm_id = f"{array}_{task}" if array and task else env.get("SLURM_JOB_ID")
        return cls(
            id=slurm_id or f"here-{os.getpid()}-{int(time.time())}",
            restart=int(env.get("SLURM_RESTART_COUNT") or 0),
            node=int(env.get("SLURM_NODEID") or 0),
        )


def run_cell(folder: str) -> None:
    """Measure the cell in a folder, as submitit's function: exit with 0 if it finished, else 1."""
    die_with_parent()
    ignore_submitit_signal()
    outcome = _attempt_to_exit(folder)
    sys.exit(0 if outcome.finished else 1)


def _attempt_to_exit(folder: str) -> Outcome:
    """Measure the cell in a folder; exit where that cannot be said in the folder itself."""
    try:
        return attempt_cell(CellFolder(Path(folder))).outcome
    except HpmlError as fault:
        print_safely(f"hpml-jobs: {fault}", error=True)
        sys.exit(NO_SPACE_CODE if isinstance(fault, NoSpaceError) else 1)


def attempt_cell(folder: CellFolder) -> AttemptEnd:
    """Measure a cell on this node; return how the attempt ended.

    A cell that has a valid record is left as it is; a requeued cell starts over. Of several nodes,
    the first one writes the attempt's files and publishes the record.

    Raises:
        NoSpaceError: the disk is full.
        HpmlError: the cell cannot be read, or its folder is gone.
    """
    try:
        return _attempt(folder)
    except OSError as fault:
        raise explained(fault, folder) from fault


def _attempt(folder: CellFolder) -> AttemptEnd:
    job = Job.current()
    attempt_id = f"{job.id}.r{job.restart}"
    attempt = Attempt(id=attempt_id, job=job.id, restart=job.restart, started=utc_now())
    file = folder.read()
    record = finished_record(folder, file)
    if record is not None:
        attempt_id = record.attempt.id
        print_safely(f"{folder.slug}: already measured by attempt {attempt_id}, nothing to do")
        return AttemptEnd(attempt=record.attempt, outcome=record.outcome, reason=record.reason)
    paths = folder.attempt(attempt.id)
    paths.errors.mkdir(parents=True, exist_ok=True)
    if job.node == 0:
        close_previous(folder, attempt)
        write_whole(paths.about, encode(attempt), parents=False)
        reserve(paths)
        write_whole(folder.current, attempt.id.encode(), parents=False)
    before = neighbour_jobs() if job.node == 0 else None
    try:
        _check_version(file)
        _check_identity(file, folder)
        end = _measure(folder, file, attempt, job)
    except HpmlError as fault:
        end = AttemptEnd(attempt=attempt, outcome=Outcome.FAILED, reason=str(fault))
    if job.node == 0:
        end = with_disk_reason(_with_neighbours(end, before), folder)
        end = _publish(folder, file, paths, end)
        release(paths)
        write_whole(paths.end, encode(end), parents=False)
        log = paths.log_of(0)
        print_safely(f"{folder.slug}: {end.outcome.value} {end.reason or ''} (log: {log})")
    return end


def _publish(
    folder: CellFolder, file: CellFile, paths: AttemptFolder, end: AttemptEnd
) -> AttemptEnd:
    """Publish the record; a full disk makes the attempt a failed one."""
    try:
        return publish(folder, file, paths, end)
    except OSError as fault:
        error = explained(fault, folder)
        if not isinstance(error, NoSpaceError):
            raise error from fault
        return msgspec.structs.replace(end, outcome=Outcome.FAILED, reason=str(error))


def _with_neighbours(end: AttemptEnd, before: dict[str, str] | None) -> AttemptEnd:
    """Return the end of an attempt with the other jobs on its nodes, before it and now."""
    after = neighbour_jobs()
    if before is None and after is None:
        return end
    jobs = {**(before or {}), **(after or {})}
    neighbours = Neighbours(
        jobs=len(jobs),
        same_user=sum(user == os.environ.get("SLURM_JOB_USER") for user in jobs.values()),
        users=tuple(sorted(set(jobs.values()))),
    )
    attempt = msgspec.structs.replace(end.attempt, neighbours=neighbours)
    return msgspec.structs.replace(end, attempt=attempt)


def _measure(folder: CellFolder, file: CellFile, attempt: Attempt, job: Job) -> AttemptEnd:
    """Run the workers of this node to their end, and judge it."""
    started_at = time.monotonic()
    paths = folder.attempt(attempt.id)

    def report_stop() -> None:
        """Write a first exit report: SLURM may kill this process before the workers have ended."""
        if job.node == 0:
            end = stopped_end(attempt, paths)
            end = apply_time_limit(end, file, time.monotonic() - started_at)
            write_whole(paths.end, encode(end), parents=False)

    code, stopped = _run_workers(file.cell, folder, paths, job, report_stop)
    paths.remove_empty_stacks()
    if file.cell.nodes > 1 and not stopped:
        _wait_for_other_nodes(paths, code)
    torchrun = file.cell.strategy.under_torchrun
    end = judge(attempt, paths, code, stopped=stopped, torchrun=torchrun)
    return apply_time_limit(end, file, time.monotonic() - started_at)


def _wait_for_other_nodes(paths: AttemptFolder, code: int) -> None:
    """Wait until a shared file system shows what another node wrote: a record, or an error."""
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


def _check_identity(file: CellFile, folder: CellFolder) -> None:
    if not file.cell.has_slug(folder.slug):
        raise HpmlError(
            f"{folder.cell_json} describes another cell, {file.cell.slug}: it was edited after "
            "submission; repeat the command that submitted the study, which restores it"
        )


def worker_command(cell: Cell, folder: Path, attempt: AttemptFolder, job: Job) -> list[str]:
    """Return the command of the workers: a plain process for single and dp, else torchrun."""
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
    """Return torchrun's options by which the processes find each other: c10d on the first node."""
    if cell.nodes == 1:
        return ["--standalone", "--local-addr=127.0.0.1"]
    first_host = commands.hosts_of_job()[0]
    job_number = int(re.sub(r"\D", "", os.environ.get("SLURM_JOB_ID", "0")) or 0)
    port = RENDEZVOUS_PORTS[job_number % len(RENDEZVOUS_PORTS)]
    return [
        f"--nnodes={cell.nodes}",
        f"--node-rank={job.node}",
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
        HOST_VARIABLE: os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
    }


def _run_workers(
    cell: Cell,
    folder: CellFolder,
    attempt: AttemptFolder,
    job: Job,
    report_stop: Callable[[], None],
) -> tuple[int, bool]:
    """Run the workers and pass SIGTERM on; return their exit code, and whether SIGTERM came.

    Before SIGTERM, and where SLURM announces the time limit, all ranks and DataLoader workers of
    this node write their stacks.
    """
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
            preexec_fn=_prepare_process,  # noqa: PLW1509  (no threads here yet)
        )

        def pass_on(_signal: int, _frame: FrameType | None) -> None:
            nonlocal stopped
            if not stopped:
                stopped = True
                request_stacks(os.getpid())
                report_stop()
                workers.terminate()  # once: a second SIGTERM interrupts torchrun's own shutdown

        def write_stacks(_signal: int, _frame: FrameType | None) -> None:
            request_stacks(os.getpid())

        before = {
            number: signal.signal(number, handler)
            for number, handler in ((signal.SIGTERM, pass_on), (STACK_SIGNAL, write_stacks))
        }
        try:
            return workers.wait(), stopped
        finally:
            if workers.poll() is None:  # interrupted: no process of a cell outlives its job
                workers.terminate()
                workers.wait()
            for number, handler in before.items():
                signal.signal(number, handler)


def _prepare_process() -> None:
    """Prepare torchrun, or a single worker, before it starts; ranks catch STACK_SIGNAL again."""
    die_with_parent()
    ignore_submitit_signal()


def main() -> None:
    """Measure the cell in the folder argv[1]; exit with 0 if ok, 3 if out of memory, else 1."""
    die_with_parent()
    # Ctrl-C in a local run reaches this process too, but the launcher is to end it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ignore_submitit_signal()
    outcome = _attempt_to_exit(sys.argv[1])
    sys.exit({Outcome.OK: 0, Outcome.OOM: OOM_CODE}.get(outcome, 1))
