"""The loaders of a rank: batches of training and test images, and their way to the device."""

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader, Sampler, Subset

from hpml_jobs.core.cell import Cell
from hpml_jobs.worker.data.datasets import Data, Images, length
from hpml_jobs.worker.fork_safety import start_loader_worker


class RecordedSampler(Sampler[int]):
    """Passes on another sampler's indices and remembers those of the last pass."""

    def __init__(self, sampler: Sampler[Any]) -> None:
        self._sampler = sampler
        self._indices: list[int] = []

    def __iter__(self) -> Iterator[int]:
        self._indices = list(self._sampler)
        return iter(self._indices)

    def __len__(self) -> int:
        return len(self._sampler)  # type: ignore[arg-type]  # all samplers used here have a length

    def digest(self) -> str:
        """Return a hash (16 hex digits) of the indices of the last pass, in their order."""
        return hashlib.sha256(
            np.array(self._indices, dtype=np.int64).tobytes()
        ).hexdigest()[:16]


Batch = tuple[Any, Any]
"""Inputs and targets."""


class BatchLoader(Protocol):
    """The batches of one pass over a data set; iterating over it starts the pass."""

    dataset: Images

    def __len__(self) -> int:
        """Return the number of batches."""

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches as `to_device` takes them."""

    def to_device(self, batch: Any) -> Batch:
        """Return the inputs and targets of a batch on the device; the host does not wait."""


class Loading(Protocol):
    """The loaders of a rank."""

    def train_loader(self, batch: int, order: RecordedSampler) -> BatchLoader:
        """Return the training batches in the order of the sampler, a partial last one included."""

    def test_loader(self, start: int = 0, step: int = 1) -> BatchLoader | None:
        """Return the batches of every `step`-th test image from `start` on; None without any."""


class WorkerLoader(DataLoader[Any]):
    """Batches that worker processes make on the CPU; they are copied to the device."""

    def __init__(self, images: Images, device: torch.device, **options: Any) -> None:
        super().__init__(images, **options)
        self._device = device

    def to_device(self, batch: Batch) -> Batch:
        """Return inputs and targets on the device; from pinned memory they are copied by it."""
        inputs, targets = batch
        return (
            inputs.to(self._device, non_blocking=True),
            targets.to(self._device, non_blocking=True),
        )


class WorkerLoading:
    """Loading with loader=workers. `start_worker` runs first in every worker, with its number."""

    def __init__(
        self,
        cell: Cell,
        data: Data,
        device: torch.device,
        start_worker: Callable[[int], None],
    ) -> None:
        self._cell = cell
        self._data = data
        self._device = device
        self._start_worker = start_worker
        self._test_loaders: dict[range, WorkerLoader] = {}

    def train_loader(self, batch: int, order: RecordedSampler) -> BatchLoader:
        """Return the training batches.

        The first pass starts the workers, which then stay: no epoch after the warm-up starts or
        ends a process. A worker's random numbers go on from epoch to epoch: every epoch augments
        anew.
        """
        return WorkerLoader(
            self._data.train,
            self._device,
            batch_size=batch,
            sampler=order,
            num_workers=self._cell.loader_workers,
            persistent_workers=self._cell.loader_workers > 0,
            pin_memory=self._device.type != "cpu",
            worker_init_fn=self._start_worker,
        )

    def test_loader(self, start: int = 0, step: int = 1) -> BatchLoader | None:
        """Return the test batches.

        In a cell that evaluates every epoch the workers stay from the first evaluation on.
        """
        images = self._data.test
        if images is None:
            return None
        share = range(start, length(images), step)  # of a rank; together all images
        loader = self._test_loaders.get(share)
        if loader is None:
            loader = test_loader(Subset(images, share), self._cell, self._device)
            if self._cell.evaluate:
                self._test_loaders[share] = loader
        return loader


def test_loader(images: Images, cell: Cell, device: torch.device) -> WorkerLoader:
    """Return the images in order, in batches; the random state of training does not change.

    Its workers end with it.
    """
    return WorkerLoader(
        images,
        device,
        generator=torch.Generator(),
        batch_size=cell.workload.test_batch,
        num_workers=cell.loader_workers,
        persistent_workers=cell.loader_workers > 0,
        pin_memory=device.type != "cpu",
        worker_init_fn=start_loader_worker,
    )
