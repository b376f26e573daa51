"""loader=device compared with loader workers: epochs in turn on a folder of images.

    python tests/benchmarks/device_loader.py [--images FOLDER] [--pairs 20] [--limit 5000]
                                       [--device cpu] [--model digits_cnn] [--batch 128]

FOLDER holds train/<class>/<image>; without it, one of JPEG images of scikit-learn's digits is made.
First the loaders alone, without training: images per second (`arrays`: images in memory, as cifar10
has them; `files`: the folder). Then pairs of timed epochs, one with 2 workers and one with
loader=device, in alternating order in one process: the median of the ratios with an interval that
contains the true median with at least 95 % (order statistics). The model is small, so that the
loader matters on a CPU too.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from jobs import write_digits
from PIL import Image
from timed_epoch import with_interval
from torch.utils.data import DataLoader, Dataset

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.strategies import Device, Loader, Strategy
from hpml_jobs.core.workload import Workload
from hpml_jobs.extras.device_loader.loading import below_subsets
from hpml_jobs.worker.data.images import training_transform
from hpml_jobs.worker.devices import devices_for
from hpml_jobs.worker.epochs import train_epoch
from hpml_jobs.worker.process_group import Placement
from hpml_jobs.worker.strategies import STRATEGIES
from hpml_jobs.worker.training import Training, make_training

WORKERS = 2
RATE_S = 5.0
"""How long a loader alone is measured, at least."""


class Arrays(Dataset[Any]):
    """Images in memory, augmented like those of torchvision's CIFAR10."""

    def __init__(self, files: Any, numbers: list[int]) -> None:
        self._arrays = files.read(numbers).permute(0, 2, 3, 1).contiguous().numpy()
        self._transform = training_transform(files.shape[-1])

    def __len__(self) -> int:
        return len(self._arrays)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self._transform(Image.fromarray(self._arrays[index])), 0


def training_of(options: argparse.Namespace, root: Path, loader: Loader) -> Training:
    """Return the training of one cell in this process."""
    classes = len([path for path in (root / "train").iterdir() if path.is_dir()])
    workload = Workload(
        name="device_loader",
        model=options.model,
        data="folder",
        images=options.limit,
        limit=options.limit,
        classes=classes,
    )
    cell = Cell(
        gpus=1,
        batch=options.batch,
        strategy=Strategy.SINGLE,
        workload=workload,
        device=Device(options.device),
        loader=loader,
        loader_workers=WORKERS if loader is Loader.WORKERS else 0,
    )
    strategy = STRATEGIES[Strategy.SINGLE](
        cell, Placement(0, 0, 1), devices_for(cell, 0)
    )
    return make_training(cell, strategy, root)


def rate(training: Training) -> float:
    """Return the images/s that a loader brings to the device without training."""
    device = training.strategy.devices[0]
    images, start, now = 0, time.perf_counter(), 0.0
    while now < RATE_S:
        for batch in training.loader:
            images += len(training.to_device(batch)[1])
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        now = time.perf_counter() - start
    return images / now


def rate_of_one_worker(images: Dataset[Any]) -> float:
    """Return the images/s of one loader worker that only loads; its start is not counted."""
    loader = DataLoader(images, batch_size=128, num_workers=1, persistent_workers=True)
    list(loader)
    number, start, now = 0, time.perf_counter(), 0.0
    while now < RATE_S:
        number += sum(len(batch[1]) for batch in loader)
        now = time.perf_counter() - start
    return number / now


def main() -> None:
    """Measure the loaders alone, run the pairs, and print both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=Path)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--limit", type=int, default=5_000)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--model", default="digits_cnn")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        root = options.images or Path(folder)
        if options.images is None:
            write_digits(root, options.limit)
        trainings = {loader: training_of(options, root, loader) for loader in Loader}
        stored = trainings[Loader.DEVICE].loading.stored
        print(
            f"{options.limit} images, batch {options.batch}, {options.model} on {options.device}; "
            f"{stored.bytes / 1e6:.0f} MB stored in {stored.load_s:.2f} s"
        )
        files, numbers = below_subsets(trainings[Loader.WORKERS].loader.dataset)
        alone = {
            "1 worker, arrays": rate_of_one_worker(Arrays(files, numbers.tolist())),
            "1 worker, files": rate_of_one_worker(
                trainings[Loader.WORKERS].loader.dataset
            ),
            f"{WORKERS} workers, files": rate(trainings[Loader.WORKERS]),
            "loader=device": rate(trainings[Loader.DEVICE]),
        }
        print(
            "images/s without training: "
            + ", ".join(f"{k} {v:,.0f}" for k, v in alone.items())
        )
        ratios, stalls = [], []
        for number in range(options.pairs + 1):  # the first is the warm-up
            epochs = {}
            for loader in list(Loader)[:: 1 if number % 2 else -1]:
                role = Role.TIMED if number else Role.WARMUP
                epochs[loader] = train_epoch(trainings[loader], number, role).epoch
            if number:
                by_workers, on_device = epochs[Loader.WORKERS], epochs[Loader.DEVICE]
                ratios.append(on_device.epoch_s / by_workers.epoch_s)
                stalls.append(by_workers.stall_s / by_workers.epoch_s)
        print(
            f"epoch, loader=device / {WORKERS} workers: {with_interval(ratios)} ({options.pairs} "
            f"pairs); stall with workers {median(stalls):.0%}, with loader=device "
            f"{on_device.stall_s / on_device.epoch_s:.1%}"
        )


if __name__ == "__main__":
    main()
