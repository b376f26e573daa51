"""The edge of a card's memory, a card that is held, a killed rank, a job that is stopped."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hpml_jobs.core.cell import Outcome, Protocol
from hpml_jobs.core.gpus import open_nvml
from hpml_jobs.core.measurements import Stage
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.job.workers import JOB_VARIABLE
from hpml_jobs.study.attempt import AttemptFolder
from hpml_jobs.study.cell_folder import CellFolder
from tests.gpu.bench import Bench, CellRun, job_command
from tests.gpu.figures import Figure
from tests.gpu.processes import child_environment

FIRST_BATCH = 1024
LEAST_IMAGE_BYTES = 5_000_000
"""Memory that training takes for an image at the least, an estimate for ResNet-18 in fp32."""
SETTLE_S = 2.0
"""How long a cell trains before it is disturbed, and its remains have to vanish after its end."""

STARTED = (Stage.WARMUP, Stage.TIMED, Stage.INSTRUMENTED)

HOLDER = """\
import sys, time, torch
held = torch.empty(int(sys.argv[1]), dtype=torch.uint8, device=sys.argv[2])
print("held", flush=True)
time.sleep(300)
"""
"""A program that takes memory of the card and keeps it."""


def measure(bench: Bench) -> Iterator[Figure]:
    """Search the largest batch, then disturb cells in three ways."""
    yield from _edge(bench)
    yield _held(bench)
    for key, number in (("killed", signal.SIGKILL), ("stopped", signal.SIGTERM)):
        yield from _ended(bench, key, number)


def _edge(bench: Bench) -> Iterator[Figure]:
    """Double the batch until a cell ends without a record, then halve the distance."""
    beyond: list[CellRun] = []

    def fits(batch: int) -> bool:
        workload = bench.workload_of(2 * batch)
        run = bench.run_cell(
            f"batch {batch}",
            workload=workload,
            batch=batch,
            protocol=Protocol.LAB,
            epochs=2,
        )
        if not run.is_ok:
            beyond.append(run)
        return run.is_ok

    most = max(bench.sizes.largest_batch, batch_beyond(_memory().total))
    largest = search_largest(fits, most, bench.sizes.batch_step)
    if largest is None:
        note = beyond[0].reason if beyond else "no cell was run"
        yield Figure(
            key="largest", value=None, note=f"batch {FIRST_BATCH} does not run: {note}"
        )
        return
    limit = "" if beyond else "no larger one was tried"
    yield Figure(key="largest", value=float(largest), note=limit)
    reasons = "; ".join(dict.fromkeys(run.reason[:120] for run in beyond))
    is_oom = [run.end is not None and run.end.outcome is Outcome.OOM for run in beyond]
    share = sum(is_oom) / len(is_oom) if is_oom else None
    yield Figure(key="edge_oom", value=share, note=reasons or "no cell ended beyond it")
    workload = bench.workload_of(2 * largest)
    full = bench.run_cell(
        "whole protocol at the edge", workload=workload, batch=largest
    )
    yield Figure(key="edge_full", value=float(full.is_ok), note=_missing(full))


def batch_beyond(memory_bytes: float) -> int:
    """Return a batch of the search that does not fit into a card's memory.

    >>> [batch_beyond(gb * 1e9) for gb in (16, 80, 141)]
    [4096, 16384, 32768]
    """
    batch = FIRST_BATCH
    while batch * LEAST_IMAGE_BYTES < memory_bytes:
        batch *= 2
    return batch


def search_largest(fits: Callable[[int], bool], most: int, step: int) -> int | None:
    """Return the largest batch that fits, to within `step`; None if the first does not.

    >>> search_largest(lambda batch: batch <= 5_000, 16_384, 256)
    4864
    """
    batch, largest = FIRST_BATCH, None
    while batch <= most and fits(batch):
        largest, batch = batch, 2 * batch
    if largest is None or batch > most:
        return largest
    low, high = largest, batch
    while high - low > step:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _missing(run: CellRun) -> str:
    """Return what a cell could not measure, or why it left no record."""
    if run.record is None or run.record.facts is None:
        return run.reason
    return "; ".join(run.record.facts.missing)[:300]


def _held(bench: Bench) -> Figure:
    """Run a cell while another process holds memory of the card."""
    words = [
        sys.executable,
        "-c",
        HOLDER,
        str(bench.sizes.hold_bytes),
        bench.device.value,
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        if holder.stdout.readline().strip() != "held":
            return Figure(
                key="held", value=None, note="the other process got no memory"
            )
        workload = bench.workload_of(4 * bench.sizes.batch)
        run = bench.run_cell("held", workload=workload, protocol=Protocol.LAB, epochs=2)
        holder.kill()
    refused = not run.is_ok and "other processes use" in run.reason
    return Figure(key="held", value=float(refused), note=run.reason[:200])


def _ended(bench: Bench, key: str, number: signal.Signals) -> Iterator[Figure]:
    """Send a signal to a rank (SIGKILL) or to the job (SIGTERM) in the middle of training."""
    workload = bench.workload_of(bench.sizes.cell_epoch_images)
    cell = bench.cell(batch=32, strategy=Strategy.DDP, workload=workload, epochs=20)
    folder = bench.cell_folder(key, cell, root=bench.folder, trace=False)
    environment = child_environment(**{JOB_VARIABLE: "gpu"})
    used_before = _gigabytes_in_use()
    with subprocess.Popen(job_command(folder), env=environment) as job:
        if not _await_training(folder, job):
            job.kill()
            yield Figure(key=f"{key}_s", value=None, note="no training within 90 s")
            return
        ranks = processes_of(folder.root)
        victim = ranks[0] if number is signal.SIGKILL and ranks else job.pid
        os.kill(victim, number)
        sent = time.monotonic()
        job.wait(90)
        seconds = time.monotonic() - sent
    end = folder.last_end()
    note = f"{end.outcome.value}: {end.reason}"[:160] if end else "no exit report"
    yield Figure(key=f"{key}_s", value=seconds, note=note)
    time.sleep(SETTLE_S)
    yield Figure(key=f"{key}_left", value=float(len(processes_of(folder.root))))
    yield Figure(key=f"{key}_gb", value=_gigabytes_in_use() - used_before)


def _await_training(
    folder: CellFolder, job: "subprocess.Popen[Any]", limit_s: float = 90
) -> bool:
    """Wait until rank 0 trains; return whether it does."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and job.poll() is None:
        attempt: AttemptFolder | None = folder.latest_attempt()
        progress = attempt.read_progress() if attempt else None
        if progress is not None and progress.role in STARTED:
            time.sleep(SETTLE_S)
            return True
        time.sleep(0.2)
    return False


def processes_of(folder: Path) -> list[int]:
    """Return the worker processes of a cell on this machine, without torchrun's own."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        is_worker = (
            b"hpml_jobs.worker" in words and b"hpml_jobs.worker.agent" not in words
        )
        if is_worker and str(folder).encode() in words:
            pids.append(int(path.parent.name))
    return sorted(pids)


def _gigabytes_in_use() -> float:
    return float(_memory().used) / 1e9


def _memory() -> Any:
    """Return NVML's memory of the first card, in bytes; this process has no context on it."""
    nvml = open_nvml()
    return nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(0))
