"""What a finished cell leaves: raw values only, written once, in one piece."""

import math
import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from hpml_jobs import __version__
from hpml_jobs.cell import Cell, Settled
from hpml_jobs.errors import HpmlError, UsageError
from hpml_jobs.formulas import iterations, samples_processed
from hpml_jobs.slurm import Outcome

SCHEMA = 1
"""Version of record.json. 1: first."""


class InvalidRecordError(HpmlError):
    """A record that must not be used, with the reason."""


class Attempt(Settled, frozen=True, kw_only=True):
    """One job for one cell. `id` is unique in the cell: the job's id and its restart count."""

    id: str
    job: str
    restart: int = 0
    hosts: tuple[str, ...] = ()
    started: str = ""  # UTC, ISO 8601
    ended: str = ""


class Epoch(Settled, frozen=True, kw_only=True):
    """One epoch as one rank saw it; seconds of that rank's own clock.

    `epoch_s` is everything between the two synchronisation points; `stall_s` the part of it in
    which the device waited for a batch. `loss` and `accuracy` are means over the samples seen.
    """

    role: str  # warmup | timed
    epoch_s: float
    stall_s: float
    iterations: int
    samples: int
    loss: float
    accuracy: float


class Rank(Settled, frozen=True, kw_only=True):
    """What one process measured, and where; dp is one process that drives several devices."""

    rank: int
    local_rank: int
    host: str
    devices: tuple[str, ...]  # names of the devices, 'cpu' with device=cpu
    device_uuids: tuple[str, ...] = ()
    affinity: tuple[int, ...] = ()  # CPU ids this process may run on
    threads: int
    loader_workers: int
    epochs: tuple[Epoch, ...]
    test_loss: float | None = None
    test_accuracy: float | None = None
    test_samples: int = 0
    peak_memory_bytes: int | None = None

    @property
    def timed(self) -> Epoch:
        """The epoch that counts."""
        return next(epoch for epoch in self.epochs if epoch.role == "timed")


class Model(Settled, frozen=True, kw_only=True):
    """What was really trained."""

    name: str
    parameters: int
    tensors: int
    gradient_bytes: int
    buffer_bytes: int


class Facts(Settled, frozen=True, kw_only=True):
    """What must be known about a number before it is compared with another."""

    hpml_jobs: str = __version__
    commit: str | None = None
    dirty: bool | None = None
    python: str = ""
    torch: str = ""
    torchvision: str = ""
    cuda: str | None = None
    cudnn: int | None = None
    nccl: str | None = None
    backend: str | None = None  # gloo | nccl; None without a process group
    driver: str | None = None
    gpu_model: str | None = None
    gpus_visible: int = 0
    topology: str | None = None
    cpu_model: str = ""
    cpu_count: int = 0
    os: str = ""
    tf32_matmul: bool | None = None
    tf32_cudnn: bool | None = None
    cudnn_benchmark: bool | None = None
    cudnn_deterministic: bool | None = None
    container: str | None = None
    slurm: dict[str, str] = {}
    nccl_environment: dict[str, str] = {}
    missing: tuple[str, ...] = ()  # facts that could not be read, with the reason


class Record(Settled, frozen=True, kw_only=True):
    """record.json: the cell, the attempt that measured it, and raw values of every rank.

    Outcome `ok` carries ranks, model and facts; outcome `oom` carries the reason.
    """

    cell: Cell
    slug: str
    attempt: Attempt
    outcome: Outcome
    reason: str | None = None
    model: Model | None = None
    facts: Facts | None = None
    ranks: tuple[Rank, ...] = ()
    schema: int = SCHEMA

    @property
    def slowest(self) -> Rank:
        """The rank with the longest timed epoch; the cell's phases are its, so that they add up."""
        return max(self.ranks, key=lambda rank: rank.timed.epoch_s)

    @property
    def epoch_s(self) -> float:
        """Seconds of the timed epoch, everything included: the maximum over ranks."""
        return self.slowest.timed.epoch_s

    @property
    def stall_s(self) -> float:
        """Seconds of the timed epoch in which the device waited for a batch (slowest rank)."""
        return self.slowest.timed.stall_s

    @property
    def train_s(self) -> float:
        """Seconds of the timed epoch without data loading: epoch_s - stall_s."""
        return self.epoch_s - self.stall_s

    @property
    def loss(self) -> float:
        """Mean training loss of the timed epoch over all samples of all ranks."""
        return self._mean("loss")

    @property
    def accuracy(self) -> float:
        """Mean training accuracy of the timed epoch over all samples of all ranks, 0 to 1."""
        return self._mean("accuracy")

    def _mean(self, field: str) -> float:
        epochs = [rank.timed for rank in self.ranks]
        total = sum(epoch.samples for epoch in epochs)
        return float(sum(getattr(epoch, field) * epoch.samples for epoch in epochs) / total)


def decode(text: bytes, place: str) -> Record:
    """Read a record and check that it can be believed.

    Raises:
        InvalidRecordError: it is half written, of another schema, or its values are impossible.
    """
    try:
        found: dict[str, Any] = msgspec.json.decode(text, type=dict)
        if found.get("schema") != SCHEMA:
            raise InvalidRecordError(
                f"{place} has record schema {found.get('schema')}, this hpml_jobs {__version__} "
                f"reads {SCHEMA}"
            )
        record = msgspec.convert(found, Record)
    except (ValueError, UsageError) as fault:  # not UTF-8, not JSON, not a record, not a cell
        raise InvalidRecordError(f"{place} is not a whole record: {fault}") from fault
    fault_found = _fault(record)
    if fault_found:
        raise InvalidRecordError(f"{place}: {fault_found}")
    return record


def _fault(record: Record) -> str | None:
    """The first reason not to believe a decoded record, or None."""
    if record.outcome is Outcome.OOM:
        return None
    if record.outcome is not Outcome.OK:
        return f"outcome {record.outcome.value} is not one that leaves a record"
    if record.model is None or record.facts is None:
        return "outcome ok without model and facts"
    cell, images = record.cell, record.cell.workload.images
    if [rank.rank for rank in record.ranks] != list(range(cell.processes)):
        present = [rank.rank for rank in record.ranks]
        return f"ranks {present} are there, {cell.processes} were expected"
    for rank in record.ranks:
        if [epoch.role for epoch in rank.epochs][:2] != ["warmup", "timed"]:
            return f"rank {rank.rank} has no warm-up and timed epoch"
        fault = next((text for epoch in rank.epochs if (text := _epoch_fault(epoch))), None)
        if fault:
            return f"rank {rank.rank}: {fault}"
    if images is None:
        return "the number of training images is missing"
    expected = iterations(images, cell.gpus, cell.batch)
    for rank in record.ranks:
        if rank.timed.iterations != expected:
            return f"rank {rank.rank} counted {rank.timed.iterations} iterations, not {expected}"
    counted = sum(rank.timed.samples for rank in record.ranks)
    expected = samples_processed(images, cell.processes)
    return None if counted == expected else f"{counted} samples were counted, not {expected}"


def _epoch_fault(epoch: Epoch) -> str | None:
    values = (epoch.epoch_s, epoch.stall_s, epoch.loss, epoch.accuracy)
    if not all(math.isfinite(value) for value in values):
        return f"a value of the {epoch.role} epoch is not finite: {values}"
    if epoch.epoch_s <= 0 or not 0 <= epoch.stall_s <= epoch.epoch_s:
        return f"impossible times in the {epoch.role} epoch: {epoch.epoch_s} s, {epoch.stall_s} s"
    return None


def encode(value: Any) -> bytes:
    """Indented JSON of any of the vocabulary's values."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees all of it or none: temporary name, fsync, replace."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
