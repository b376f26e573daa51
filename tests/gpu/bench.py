"""What the parts share: the device, warm trainings in this process, cells as jobs."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
import torch.distributed as dist

from hpml_jobs.core.cell import Cell, CellFile, Protocol
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.training_path import AMPERE, Precision
from hpml_jobs.core.workload import Workload
from hpml_jobs.job.workers import JOB_VARIABLE
from hpml_jobs.results.gpus import gpu_key, peaks
from hpml_jobs.study.cell_folder import AttemptEnd, CellFolder
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.worker.devices import devices_for
from hpml_jobs.worker.epochs import train_epoch
from hpml_jobs.worker.instruments.timing import synchronize
from hpml_jobs.worker.process_group import Placement
from hpml_jobs.worker.strategies import STRATEGIES
from hpml_jobs.worker.training import Training, make_training
from tests.gpu.processes import ROOT, child_environment
from tests.gpu.sizes import Sizes, pace_of

ONE_GPU = "it needs two GPUs, and torch sees one"


class Finished(NamedTuple):
    """A process that has ended: its exit code and the end of its output."""

    code: int
    output: str

    @property
    def last_line(self) -> str:
        """The last line of the output, 200 characters of it at most."""
        return self.output.strip().rpartition("\n")[2][:200]


Command = Callable[[Sequence[str], Mapping[str, str], float], Finished]


def run_command(
    words: Sequence[str], variables: Mapping[str, str], limit_s: float
) -> Finished:
    """Run a command with more environment variables; past the limit it is killed, code 124."""
    try:
        process = subprocess.run(
            words,
            env=child_environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Finished(124, f"stopped after {limit_s:g} s")
    return Finished(process.returncode, process.stdout[-4000:])


class CellRun(NamedTuple):
    """A cell that was run as a job; `record` is None if it left none that can be used."""

    end: AttemptEnd | None
    record: Record | None

    @property
    def is_ok(self) -> bool:
        """Whether it left a record with numbers."""
        return self.record is not None and bool(self.record.ranks)

    @property
    def reason(self) -> str:
        """How it ended, in one line."""
        if self.end is None:
            return "no exit report"
        return f"{self.end.outcome.value}: {self.end.reason or ''}".strip(": ")


class ResidentBatches(list[Any]):
    """Batches that are on the device before the epoch, in place of a loader."""

    def to_device(self, batch: Any) -> Any:
        """Return the batch, which is there already."""
        return batch


class Bench:
    """The device, the folder for files, the sizes, and the way to run commands.

    `card` is the name of the first GPU, empty in a rehearsal.
    """

    def __init__(
        self,
        folder: Path,
        device: Device = Device.CUDA,
        sizes: Sizes | None = None,
        command: Command = run_command,
        card: str = "",
    ) -> None:
        self.folder = folder
        self.device = device
        self.card = card
        self._pace = pace_of(card)
        self.sizes = sizes or Sizes().at(self._pace)
        self._command = command

    def command(
        self, words: Sequence[str], variables: Mapping[str, str], limit_s: float
    ) -> Finished:
        """Run a command with more environment variables; the limit is that on an H200."""
        return self._command(words, variables, limit_s * self._pace.limits)

    def why_not(self, precision: Precision) -> str:
        """Return why the card cannot compute in a precision; empty where it can or may."""
        is_newer = precision in (Precision.BF16, Precision.TF32)
        key = gpu_key(self.card)
        has_tf32 = not key or peaks()[key].tf32 is not None
        return f"{precision} needs {AMPERE}" if is_newer and not has_tf32 else ""

    @property
    def torch_device(self) -> torch.device:
        """The device that this process measures on."""
        on_cpu = self.device is Device.CPU
        return (
            torch.device("cpu")
            if on_cpu
            else torch.device("cuda", torch.cuda.current_device())
        )

    @property
    def has_two_gpus(self) -> bool:
        """Whether two ranks have a GPU each; in a rehearsal they need none."""
        return self.device is Device.CPU or torch.cuda.device_count() > 1

    def cell(self, **settings: Any) -> Cell:
        """Return a cell of one process; the default is the plain loop and the whole protocol."""
        protocol = settings.get("protocol", Protocol.FULL)
        values = {
            "gpus": 1,
            "batch": self.sizes.batch,
            "strategy": Strategy.SINGLE,
            "workload": self.sizes.workload,
            "protocol": protocol,
            "epochs": protocol.epochs,
            "probe_s": self.sizes.probe_s,
            "device": self.device,
        }
        return Cell(**(values | settings))

    # Cells as users run them: cell.json, the job's wrapper, workers, record.json.

    def run_cell(
        self,
        label: str,
        *,
        trace: bool = False,
        limit_s: float = 300,
        **settings: Any,
    ) -> CellRun:
        """Run a cell in a folder of its own through the job's wrapper, to its end."""
        cell = self.cell(**settings)
        place = self.folder / "cells" / re.sub(r"\W+", "_", label) / cell.slug
        file = CellFile(
            cell=cell,
            data_root=str(self.folder),
            code_root=str(ROOT),
            trace=trace,
        )
        folder = CellFolder(place)
        write_whole(folder.cell_json, encode(file))
        words = [sys.executable, "-m", "hpml_jobs.job", str(folder.root)]
        self.command(words, {JOB_VARIABLE: "gpu"}, limit_s)
        end = folder.last_end()
        try:
            return CellRun(end, folder.read_record())
        except HpmlError:
            return CellRun(end, None)

    # Trainings in this process, for what a cell cannot show of itself.

    def training(self, cell: Cell, batches: ResidentBatches | None = None) -> Training:
        """Return a warm training; `batches` on the device stand for a loader that costs nothing."""
        torch.set_num_threads(1)
        on_cuda = self.device is Device.CUDA and not torch.cuda.is_initialized()
        devices = devices_for(cell, 0) if on_cuda else (self.torch_device,)
        strategy = STRATEGIES[cell.strategy](cell, Placement(0, 0, 1), devices)
        if cell.strategy.under_torchrun and not dist.is_initialized():
            os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
            os.environ["MASTER_PORT"] = "0"
            strategy.setup(timedelta(minutes=2))
        training = make_training(cell, strategy, self.folder)
        if batches is not None:
            training.loader = batches
        train_epoch(training, 0, Role.WARMUP)
        return training

    def resident_batches(
        self, count: int, kind: type[ResidentBatches] = ResidentBatches
    ) -> ResidentBatches:
        """Return `count` references to one batch on the device."""
        workload, device = self.sizes.workload, self.torch_device
        shape = (self.sizes.batch, 3, workload.image_size, workload.image_size)
        images = torch.randn(shape, device=device)
        targets = torch.randint(workload.classes, (self.sizes.batch,), device=device)
        return kind([(images, targets)] * count)

    def workload_of(self, images: int) -> Workload:
        """Return the workload with another number of images."""
        return msgspec.structs.replace(self.sizes.workload, images=images)

    def synchronize(self) -> None:
        """Wait for the device."""
        synchronize((self.torch_device,))
