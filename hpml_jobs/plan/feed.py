"""What plan says of the loader: images/s that the workers make, and that the GPU takes.

Both are estimates from published figures and from measurements on other machines, for one line
before anything is submitted; the record has the measured stall.
"""

from collections.abc import Iterable
from typing import NamedTuple

from hpml_jobs.checks.gpu_peaks import PEAKS, gpu_key, known_flop_per_sample
from hpml_jobs.core.cell import Cell
from hpml_jobs.core.loader import Loader
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.text import counted

IMAGES_PER_WORKER_S = {"cifar10": 3_000, "digits": 50_000}
"""32x32 images per second that one loader worker makes of each data set, by
benchmarks/device_loader.py on a virtual machine with an AMD EPYC. Other CPUs differ by a factor of
2 to 3."""

KNOWN_IMAGE_SIZE = 32

FP32_SHARE = 0.57
TF32_SHARE = 0.15
FP32_SHARE_BESIDE_TF32 = 0.3
"""The share of the peak FLOP/s that training a ResNet reaches. ResNet-50 in
NVIDIA/DeepLearningExamples, 24.5e9 FLOP per image: V100 in fp32 367 images/s, A100 in TF32 938.
Of cards that have little more in TF32 than in fp32 (GA102, AD102) that share would be too low."""


class Feed(NamedTuple):
    """A process of a cell: images/s of its loader workers, and what its GPUs take."""

    cell: Cell
    gpu: str
    made: float
    taken: float

    @property
    def gpus(self) -> int:
        """GPUs that the process feeds."""
        return 1 if self.cell.strategy.under_torchrun else self.cell.gpus

    @property
    def is_limit(self) -> bool:
        """Whether the GPUs wait for the loader."""
        return self.made < self.taken

    def __str__(self) -> str:
        """For people, in one line."""
        workers = counted(self.cell.loader_workers, "loader worker")
        feeds = "feeds" if self.cell.loader_workers == 1 else "feed"
        takes = "takes" if self.gpus == 1 else "take"
        text = (
            f"{workers} {feeds} about {rounded(self.made)} images/s, {self.gpus} x {self.gpu} "
            f"{takes} about {rounded(self.taken)} at a large batch (estimates, docs/data.md)"
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


def images_taken_s(gpu: str, parameters: int | None, image_size: int) -> float | None:
    """Return the images/s that a GPU trains in fp32 with TF32 at a large batch; None if unknown.

    >>> [rounded(images_taken_s(gpu, 11_173_962, 32)) for gpu in ("v100", "a100", "h200", "l40s")]
    ['3,000', '7,000', '20,000', '8,000']
    """
    peak, flop = PEAKS.get(gpu_key(gpu)), known_flop_per_sample(parameters, image_size)
    if peak is None or flop is None:
        return None
    if peak.tf32 is None:
        return FP32_SHARE * peak.fp32 * 1e12 / flop
    return max(TF32_SHARE * peak.tf32, FP32_SHARE_BESIDE_TF32 * peak.fp32) * 1e12 / flop


def feed_of(cell: Cell, gpu: str | None) -> Feed | None:
    """Return what is made and taken in a cell; None where one of them is not known."""
    workload = cell.workload
    per_worker_s = IMAGES_PER_WORKER_S.get(workload.data)
    if cell.device is not Device.CUDA or cell.loader is not Loader.WORKERS or gpu is None:
        return None
    taken = images_taken_s(gpu, workload.parameters, workload.image_size)
    if per_worker_s is None or taken is None or workload.image_size != KNOWN_IMAGE_SIZE:
        return None
    feed = Feed(cell, gpu, max(1, cell.loader_workers) * per_worker_s, taken)
    return feed._replace(taken=taken * feed.gpus)


def least_fed(cells: Iterable[Cell], gpu: str | None) -> Feed | None:
    """Return the feed of the cell whose loader keeps up least; None where none is known."""
    feeds = [feed for cell in cells if (feed := feed_of(cell, cell.gpu_type or gpu))]
    return min(feeds, key=lambda feed: feed.made / feed.taken, default=None)
