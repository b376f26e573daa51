"""How fast a cell trains on each GPU, estimated before it runs, and the key that gives more.

The rates of GPUs, loader workers and hosts are from published figures and from measurements on
other machines, for one line before anything is submitted; the record has the measured ones.
"""

import functools
from collections.abc import Iterable, Mapping
from math import ceil, inf, log2
from pathlib import Path
from typing import NamedTuple

import msgspec

from hpml_jobs.checks.gpu_peaks import PEAKS, gpu_key, half_precision, planned_flop
from hpml_jobs.core.cell import Cell
from hpml_jobs.core.cluster import limit_of_host
from hpml_jobs.core.data_files import TRAIN, class_folders, images_of
from hpml_jobs.core.strategies import Device, Loader
from hpml_jobs.core.text import counted
from hpml_jobs.core.training_path import CompileMode, TrainingPath
from hpml_jobs.core.workload import Workload
from hpml_jobs.plan.cells import PlannedCell
from hpml_jobs.slurm.commands import inventory

IMAGES_PER_WORKER_S = {"cifar10": 3_000, "folder": 1_300, "digits": 50_000}
"""32x32 images per second that one loader worker makes of each data set, by
tests/benchmarks/device_loader.py on a virtual machine with an AMD EPYC; in a folder, JPEG files of
about 1 kB. Other CPUs differ by a factor of 2 to 3."""

SMALL_FILE_BYTES = 4_000
SAMPLED_FILES = 50
"""Nothing is said of a folder whose first files are larger on average: decoding takes longer."""

LEAST_ITERATION_S = 0.006
"""The least time in which a host queues the kernels of an iteration of ResNet-18, uncompiled."""


class Shares(NamedTuple):
    """The shares of the peak FLOP/s that training reaches, `compiled` in half precision."""

    fp32: float
    tf32: float
    half: float
    compiled: float


OF_CONVOLUTIONS = Shares(fp32=0.57, tf32=0.15, half=0.2, compiled=0.2)
"""ResNet-50 in NVIDIA/DeepLearningExamples, 24.5e9 FLOP per image: V100 in fp32 367 images/s, A100
in TF32 938 and with autocast 2,470. No figure of the compiled model is at hand."""

OF_TRANSFORMERS = Shares(fp32=0.57, tf32=0.22, half=0.22, compiled=0.4)
"""GPT-2 124M in bf16: 41 % in llm.c (published.py); torch.compile makes an iteration of nanoGPT
shorter, from 250 to 135 ms (its README). fp32 as for convolutions, TF32 as bf16: estimates."""

LEAST_WIDTH = 512
"""Matrices of narrower transformers are too small for these shares."""

FP32_SHARE_BESIDE_TF32 = 0.3
"""Of cards that have little more in TF32 than in fp32 (GA102, AD102) the share of TF32 would be too
low."""


def rounded(rate: float) -> str:
    """Return a rate with one significant digit, with two where the first is 1.

    >>> [rounded(rate) for rate in (2_340, 14_812, 52_000)]
    ['2,000', '15,000', '50,000']
    """
    return f"{float(f'{rate:.0e}') if f'{rate:e}'[0] != '1' else float(f'{rate:.1e}'):,.0f}"


def flop_per_s(gpu: str, workload: Workload, path: TrainingPath) -> float | None:
    """Return the FLOP/s that a GPU reaches in training; None for unknown cards.

    >>> resnet = Workload(name="r", model="resnet18_cifar", data="cifar10")
    >>> [round(flop_per_s(gpu, resnet, TrainingPath()) / 1e12) for gpu in ("v100", "a100", "l40s")]
    [9, 23, 27]
    >>> from hpml_jobs.core.training_path import Precision
    >>> paths = [TrainingPath(precision=Precision(word)) for word in ("fp32", "bf16")]
    >>> [round(flop_per_s("a100", resnet, path) / 1e12) for path in paths]
    [11, 62]
    """
    peak = PEAKS.get(gpu_key(gpu))
    if peak is None:
        return None
    shares = OF_CONVOLUTIONS if workload.has_convolutions else OF_TRANSFORMERS
    if path.precision and path.precision.is_half:
        half = peak.half_in_training
        return (shares.compiled if path.compile else shares.half) * half * 1e12 if half else None
    uses_tf32 = path.tf32.cudnn if workload.has_convolutions else path.tf32.matmul
    if peak.tf32 is None or not uses_tf32:
        return shares.fp32 * peak.fp32 * 1e12
    return max(shares.tf32 * peak.tf32, FP32_SHARE_BESIDE_TF32 * peak.fp32) * 1e12


def samples_taken_s(gpu: str, workload: Workload, path: TrainingPath) -> float | None:
    """Return the samples/s that a GPU trains at a large batch; None for unknown cards and models.

    >>> resnet = Workload(name="r", model="resnet18_cifar", data="cifar10", parameters=11_173_962)
    >>> gpus = ("v100", "a100", "h200", "l40s")
    >>> [rounded(samples_taken_s(gpu, resnet, TrainingPath())) for gpu in gpus]
    ['3,000', '7,000', '20,000', '8,000']
    """
    flop, reached = planned_flop(workload).figure, flop_per_s(gpu, workload, path)
    is_narrow = workload.width is not None and workload.width < LEAST_WIDTH
    return None if flop is None or reached is None or is_narrow else reached / flop


class Speed(NamedTuple):
    """The samples/s of a cell on each of its GPUs.

    The GPU takes so many, `most` on the fastest path of its model; loader workers make and the host
    launches so many, where they may be the limit.
    """

    cell: Cell
    gpu: str
    taken: float
    most: float
    made: float
    launched: float

    @property
    def rate(self) -> float:
        """The least of the three."""
        return min(self.taken, self.made, self.launched)

    @property
    def busy(self) -> float:
        """The share of the time in which the GPU computes."""
        return self.rate / self.taken

    @property
    def remedy(self) -> str:
        """The key that gives more; empty where none is known."""
        cell, path = self.cell, self.cell.path
        able = min(self.taken, self.launched)
        if self.made < able:
            workers = ceil(able * max(1, cell.loader_workers) / self.made)
            return f"loader=device, or about loader_workers={workers},"
        if self.launched < self.taken:
            batch = 2 ** ceil(log2(cell.batch * self.taken / self.launched))
            return f"batch={batch}" if batch <= (cell.images_per_gpu or inf) else ""
        half = half_precision(self.gpu)
        if half and not (path.precision and path.precision.is_half):
            return f"precision={half}" if path.precision else "path=auto"
        may_compile = half and cell.strategy.traffic.may_compile
        return "compile=true" if may_compile and not path.compile else ""

    def __str__(self) -> str:
        """For people, in one line."""
        workload, precision = self.cell.workload, self.cell.path.precision
        unit = f"{workload.throughput_unit}/s"
        rate, most = (
            rounded(workload.units_of(value) or value) for value in (self.rate, self.most)
        )
        text = f"1 x {self.gpu}: about {rate} {unit}" + (f" in {precision}" if precision else "")
        if self.rate == self.launched:
            text += f", as fast as the host launches batch={self.cell.batch}"
        elif self.rate == self.made:
            text += f" from {counted(self.cell.loader_workers, 'loader worker')}"
        if self.rate < self.most:
            text += f", {100 * self.rate / self.most:.0f} % of the {most} that it can reach"
        text += " (estimates, docs/keys.md)"
        return f"{text}: {self.remedy} gives more" if self.remedy else text


def speed_of(planned: PlannedCell, gpu: str | None) -> Speed | None:
    """Return the speed of a cell on a type of GPU; None where card or model is not known."""
    cell = planned.cell
    workload, path, traffic = cell.workload, cell.path, cell.strategy.traffic
    taken = samples_taken_s(gpu, workload, path) if gpu else None
    if cell.device is not Device.CUDA or gpu is None or taken is None:
        return None
    mode = path.compile or (CompileMode.DEFAULT if traffic.may_compile else None)
    best = msgspec.structs.replace(
        path, precision=half_precision(gpu) or path.precision, compile=mode
    )
    per_worker = _per_worker(planned) if cell.loader is Loader.WORKERS else inf
    gpus_of_process = 1 if traffic.under_torchrun else cell.gpus
    launches_limit = workload.has_convolutions and not path.compile
    return Speed(
        cell,
        gpu,
        taken,
        most=max(taken, samples_taken_s(gpu, workload, best) or 0),
        made=max(1, cell.loader_workers) * per_worker / gpus_of_process,
        launched=cell.batch / LEAST_ITERATION_S if launches_limit else inf,
    )


def speeds_of(cells: Iterable[PlannedCell], gpu: str | None) -> list[Speed]:
    """Return the speeds that are known; `gpu` is the GPU of cells that do not name theirs."""
    speeds = (speed_of(planned, planned.cell.gpu_type or gpu) for planned in cells)
    return [speed for speed in speeds if speed]


def estimate(speeds: Iterable[Speed]) -> Speed | None:
    """Return the speed of the cell whose loader keeps up least, else of the fastest cell."""
    return min(speeds, key=lambda s: (min(1, s.made / s.taken), -s.rate), default=None)


def utilization_line(speeds: Iterable[Speed], limits: Mapping[str, int]) -> str:
    """Return a warning of the cell that uses its GPU least, if the site cancels such jobs.

    `limits` are the percentages of `cluster.cancel_below_utilization`, by pattern of hosts.
    """
    least = min(speeds, key=lambda speed: speed.busy, default=None)
    if least is None or not limits:
        return ""
    hosts = [node.name for node in inventory() if node.gpu_type == least.gpu]
    limit = max((limit_of_host(limits, host) or 0 for host in hosts), default=0)
    if 100 * least.busy >= limit:
        return ""
    return (
        f"batch {least.cell.batch} on {least.gpu}: about {100 * least.busy:.0f} % GPU utilization "
        f"(estimate, docs/keys.md); this site cancels jobs below {limit} %: use "
        f"{least.remedy.rstrip(',') or 'a larger batch='}"
    )


def _per_worker(planned: PlannedCell) -> float:
    """Return the images/s that one loader worker makes; infinite where that is not known."""
    data = planned.cell.workload.data
    is_known = data != "folder" or _are_small(planned.file.data_root)
    return IMAGES_PER_WORKER_S.get(data, inf) if is_known else inf


@functools.cache
def _are_small(root: str) -> bool:
    """Return whether the first images of a folder are about as large as those of the estimate."""
    try:
        folders = class_folders(Path(root, TRAIN))
        files = [file for folder in folders[:1] for file in images_of(folder)[:SAMPLED_FILES]]
        sizes = [file.stat().st_size for file in files]
    except OSError:
        return False
    return bool(sizes) and sum(sizes) / len(sizes) <= SMALL_FILE_BYTES
