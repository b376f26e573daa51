"""The loader of a cell: its workers where the user gives none, and whether they keep up.

The images/s that workers make and that a GPU takes are estimates from published figures and from
measurements on other machines, for one line before anything is submitted; the record has the
measured stall.
"""

import functools
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hpml_jobs.checks.gpu_peaks import PEAKS, gpu_key, known_flop_per_sample, peak_rate
from hpml_jobs.core.cell import Cell
from hpml_jobs.core.cluster import Cluster, Launcher
from hpml_jobs.core.data_files import TRAIN, class_folders, images_of
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.strategies import Device, Loader
from hpml_jobs.core.text import counted
from hpml_jobs.core.training_path import Precision
from hpml_jobs.plan import machine
from hpml_jobs.slurm import commands
from hpml_jobs.study.study import Study

if TYPE_CHECKING:
    from hpml_jobs.plan.cells import PlannedCell

DEFAULT_WORKERS = 2
"""Of cells on CPUs and on GPUs that are slow or not known, and of all versions before 0.8.0."""

WORKERS_BY_PEAK = ((300e12, 8), (30e12, 4))
"""From this peak FLOP/s of fp32 values on (tensor cores included): that many workers. A ResNet-18
on 32x32 images takes more per second than 2 workers make there (docs/keys.md)."""


def cpus_per_gpu(loader_workers: int, threads: int, *, several_nodes: bool = False) -> int:
    """Return the CPUs that a process on a GPU keeps busy.

    Beside loader workers and the threads of the training loop, autograd and the thread that pins
    batches work, and between nodes NCCL's proxy, which polls.

    >>> cpus_per_gpu(8, 1), cpus_per_gpu(2, 1, several_nodes=True)
    (10, 5)
    """
    return loader_workers + threads + (2 if several_nodes else 1)


class Workers(NamedTuple):
    """A chosen number, and why; no reason for the default."""

    number: int
    reason: str = ""


def workers_for(gpu: str | None, cpus: int | None, threads: int) -> Workers:
    """Return the number for a GPU by its name, as many as have one of its node's `cpus` per GPU.

    >>> workers_for("h200", None, 1).number, workers_for("h200", 6, 1).number
    (8, 4)
    >>> workers_for("rtx8000", 48, 1), workers_for(None, None, 1)
    (Workers(number=2, reason=''), Workers(number=2, reason=''))
    """
    peak = peak_rate(gpu, "fp32") if gpu else None
    if peak is None:
        return Workers(DEFAULT_WORKERS)
    wanted = next((n for least, n in WORKERS_BY_PEAK if peak.flop_per_s >= least), DEFAULT_WORKERS)
    able = wanted if cpus is None else max(DEFAULT_WORKERS, cpus - cpus_per_gpu(0, threads))
    if DEFAULT_WORKERS in (wanted, able):
        return Workers(DEFAULT_WORKERS)
    if able < wanted:
        return Workers(able, f"there are {cpus} CPUs for each {gpu}")
    return Workers(wanted, f"the default for {gpu}")


Choose = Callable[[str | None, int], int]
"""Returns the number for a GPU type and a number of threads."""


def chooser(cluster: Cluster, study: Study, notify: Callable[[str], None]) -> Choose:
    """Return the function that chooses; it looks at the cluster and the study once for each GPU."""
    return functools.cache(functools.partial(_chosen, cluster, study, notify))


def _chosen(
    cluster: Cluster,
    study: Study,
    notify: Callable[[str], None],
    gpu_type: str | None,
    threads: int,
) -> int:
    """Return the number for cells on GPUs; say so where it is not the default of old versions.

    A study that has cells with this default keeps it, so that its cells can be compared, and
    finished ones are not measured again.
    """
    gpu = gpu_name(gpu_type, cluster)
    workers = workers_for(gpu, _cpus_per_gpu(gpu_type, cluster), threads)
    if workers.number == DEFAULT_WORKERS:
        return DEFAULT_WORKERS
    if _has_default_cells(study, gpu_type):
        notify(
            f"loader_workers={DEFAULT_WORKERS}, as other cells of {study.name} have (a new study "
            f"has {workers.number} on {gpu}; change it: loader_workers=)"
        )
        return DEFAULT_WORKERS
    notify(f"loader_workers={workers.number}: {workers.reason} (change it: loader_workers=)")
    return workers.number


def gpu_name(gpu_type: str | None, cluster: Cluster) -> str | None:
    """Return the requested GPU type; on a local machine, the name of its first GPU."""
    if cluster.launcher is Launcher.LOCAL:
        return next(iter(machine.local_gpus()), None)
    return gpu_type


def _cpus_per_gpu(gpu_type: str | None, cluster: Cluster) -> int | None:
    """Return the fewest CPUs that a node has for each GPU; None where that is not known."""
    if cluster.launcher is Launcher.LOCAL:
        gpus = len(machine.local_gpus())
        return len(os.sched_getaffinity(0)) // gpus if gpus else None
    nodes = [node for node in commands.inventory() if node.gpus]
    typed = [node for node in nodes if node.gpu_type == gpu_type]
    return min((node.cpus // node.gpus for node in typed or nodes), default=None)


def _has_default_cells(study: Study, gpu_type: str | None) -> bool:
    for folder in study.cells():
        try:
            cell = folder.read().cell
        except HpmlError:
            continue
        has_default = cell.loader is Loader.WORKERS and cell.loader_workers == DEFAULT_WORKERS
        if cell.device is Device.CUDA and cell.gpu_type == gpu_type and has_default:
            return True
    return False


IMAGES_PER_WORKER_S = {"cifar10": 3_000, "folder": 1_300, "digits": 50_000}
"""32x32 images per second that one loader worker makes of each data set, by
tests/benchmarks/device_loader.py on a virtual machine with an AMD EPYC; in a folder, JPEG files of
about 1 kB. Other CPUs differ by a factor of 2 to 3."""

SMALL_FILE_BYTES = 4_000
SAMPLED_FILES = 50
"""Nothing is said of a folder whose first files are larger on average: decoding takes longer."""

FP32_SHARE = 0.57
TF32_SHARE = 0.15
HALF_SHARE = 0.2
FP32_SHARE_BESIDE_TF32 = 0.3
"""The share of the peak FLOP/s that training a ResNet reaches. ResNet-50 in
NVIDIA/DeepLearningExamples, 24.5e9 FLOP per image: V100 in fp32 367 images/s, A100 in TF32 938 and
with autocast 2,470. Of cards that have little more in TF32 than in fp32 (GA102, AD102) the share of
TF32 would be too low."""


class Feed(NamedTuple):
    """A process of a cell: images/s of its loader workers, and what its `gpus` take."""

    cell: Cell
    gpu: str
    gpus: int
    made: float
    taken: float

    @property
    def is_limit(self) -> bool:
        """Whether the GPUs wait for the loader."""
        return self.made < self.taken

    def __str__(self) -> str:
        """For people, in one line."""
        workers = counted(self.cell.loader_workers, "loader worker")
        feeds = "feeds" if self.cell.loader_workers == 1 else "feed"
        takes = "takes" if self.gpus == 1 else "take"
        precision = self.cell.path.precision
        how = f" in {precision.value}" if precision else ""
        text = (
            f"{workers} {feeds} about {rounded(self.made)} images/s, {self.gpus} x {self.gpu} "
            f"{takes} about {rounded(self.taken)}{how} at a large batch (estimates, docs/keys.md)"
        )
        if not self.is_limit:
            return f"{text}: the loader keeps up"
        enough = -(-self.taken * self.cell.loader_workers // self.made)
        return (
            f"{text}: the loader is the limit; use loader=device, or about "
            f"loader_workers={enough:.0f}"
        )


def rounded(rate: float) -> str:
    """Return a rate with one significant digit, with two where the first is 1.

    >>> [rounded(rate) for rate in (2_340, 14_812, 52_000)]
    ['2,000', '15,000', '50,000']
    """
    return f"{float(f'{rate:.0e}') if f'{rate:e}'[0] != '1' else float(f'{rate:.1e}'):,.0f}"


def flop_per_s(gpu: str, precision: Precision | None) -> float | None:
    """Return the FLOP/s that a GPU reaches in training a ResNet; None for unknown cards.

    >>> cards = ("v100", "a100", "h200", "l40s")
    >>> [round(flop_per_s(gpu, None) / 1e12) for gpu in cards]
    [9, 23, 74, 27]
    >>> [round(flop_per_s("a100", Precision(word)) / 1e12) for word in ("fp32", "bf16")]
    [11, 62]
    """
    peak = PEAKS.get(gpu_key(gpu))
    if peak is None:
        return None
    if precision and precision.is_half:
        half = peak.half_in_training
        return HALF_SHARE * half * 1e12 if half else None
    if peak.tf32 is None or precision is Precision.FP32:
        return FP32_SHARE * peak.fp32 * 1e12
    return max(TF32_SHARE * peak.tf32, FP32_SHARE_BESIDE_TF32 * peak.fp32) * 1e12


def images_taken_s(
    gpu: str, parameters: int | None, image_size: int, precision: Precision | None = None
) -> float | None:
    """Return the images/s that a GPU trains at a large batch; None for unknown cards and models.

    >>> [rounded(images_taken_s(gpu, 11_173_962, 32)) for gpu in ("v100", "a100", "h200", "l40s")]
    ['3,000', '7,000', '20,000', '8,000']
    """
    flop, reached = known_flop_per_sample(parameters, image_size), flop_per_s(gpu, precision)
    return None if flop is None or reached is None else reached / flop


def feed_of(cell: Cell, gpu: str | None) -> Feed | None:
    """Return what is made and taken in a cell; None where one of them is not known."""
    workload = cell.workload
    per_worker_s = IMAGES_PER_WORKER_S.get(workload.data)
    if cell.device is not Device.CUDA or cell.loader is not Loader.WORKERS or gpu is None:
        return None
    size = workload.parameters, workload.image_size
    taken = images_taken_s(gpu, *size, cell.path.precision)
    if per_worker_s is None or taken is None:
        return None
    gpus = 1 if cell.strategy.under_torchrun else cell.gpus
    return Feed(cell, gpu, gpus, max(1, cell.loader_workers) * per_worker_s, gpus * taken)


def least_fed(cells: "Iterable[PlannedCell]", gpu: str | None) -> Feed | None:
    """Return the feed of the cell whose loader keeps up least; None where none is known.

    `gpu` is the GPU of cells that do not name theirs.
    """
    feeds = [
        feed
        for planned in cells
        if (feed := feed_of(planned.cell, planned.cell.gpu_type or gpu))
        and (planned.cell.workload.data != "folder" or _are_small(planned.file.data_root))
    ]
    return min(feeds, key=lambda feed: feed.made / feed.taken, default=None)


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
