"""What plan says of the loader: images/s that the workers make, and that the GPU takes.

Both are estimates from published figures and from measurements on other machines, for one line
before anything is submitted; the record has the measured stall.
"""

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from hpml_jobs.checks.gpu_peaks import PEAKS, gpu_key, known_flop_per_sample
from hpml_jobs.core.cell import Cell
from hpml_jobs.core.data_files import TRAIN, class_folders, images_of
from hpml_jobs.core.strategies import Device, Loader
from hpml_jobs.core.text import counted
from hpml_jobs.core.training_path import Precision
from hpml_jobs.plan.cells import PlannedCell

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
    >>> [round(flop_per_s("a100", precision) / 1e12) for precision in ("fp32", "bf16")]
    [11, 62]
    """
    peak = PEAKS.get(gpu_key(gpu))
    if peak is None:
        return None
    if precision in (Precision.BF16, Precision.FP16):
        return HALF_SHARE * peak.half * 1e12 if peak.half else None
    if peak.tf32 is None or precision == Precision.FP32:
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


def least_fed(cells: Iterable[PlannedCell], gpu: str | None) -> Feed | None:
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
