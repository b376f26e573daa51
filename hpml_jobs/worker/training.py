"""What an epoch needs: data, model, optimizer, tied together by the cell's strategy."""

import gc
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hpml_jobs.cell import Cell, Device, Workload
from hpml_jobs.measures import Card
from hpml_jobs.worker import data as datasets
from hpml_jobs.worker import models
from hpml_jobs.worker.strategies import Sampler, Single

REBUILDING = 2
"""Iterations after which DDP has rebuilt its buckets: the first still has those it began with."""

Batch = tuple[Any, Any]


@dataclass
class Training:
    """All that an epoch needs. `replica` is this rank's model, `model` is it as it is trained.

    `exchanges` is false on a throw-away copy whose gradients never meet. `last` is the batch that
    was on the device last; `cards` are the GPUs as they were at the end of an instrumented epoch.
    """

    cell: Cell
    strategy: Single
    replica: nn.Module
    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss: models.Loss
    loader: datasets.Loader
    sampler: Sampler
    test_images: datasets.Images | None
    exchanges: bool = True
    last: Batch | None = None
    cards: tuple[Card, ...] = ()

    def batches(self, number: int) -> Iterable[Batch]:
        """The batches of an epoch, whose loader workers start when they are iterated over."""
        if self.sampler is not None:
            self.sampler.set_epoch(number)  # else every epoch has the same order and shares
        return self.loader

    def wrap_anew(self, *, observed: bool) -> None:
        """Wrap the model anew, with eyes on the collectives or without; nothing trained changes.

        So the timed epoch runs bare, and the instrumented one after it is watched. DDP's new
        buckets settle in two passes without a step; buffers and random numbers are put back.
        """
        buffers = [buffer.clone() for buffer in self.replica.buffers()]
        self.model = self.replica
        gc.collect()  # the wrapper goes, and with it its hooks on the parameters
        self.model = self.strategy.wrap(self.replica, observed=observed)
        if self.strategy.overlaps and self.last is not None:
            self._settle_buckets(self.last)
        with torch.no_grad():  # DDP's constructor and its forward send rank 0's to all
            for buffer, before in zip(self.replica.buffers(), buffers, strict=True):
                buffer.copy_(before)

    def _settle_buckets(self, batch: Batch) -> None:
        """Passes without a step, after which DDP has rebuilt its buckets."""
        cards = [device.index for device in self.strategy.devices if device.type == "cuda"]
        with torch.random.fork_rng(devices=cards):
            for _ in range(REBUILDING):
                self.loss(self.model(batch[0]), batch[1]).backward()  # type: ignore[no-untyped-call]
                self.optimizer.zero_grad()

    def samples(self) -> Batch:
        """Two training samples (one where a batch is one) as a batch on the CPU."""
        batch: Batch = datasets.first(self.loader.dataset, min(2, self.cell.batch))
        return batch

    def throwaway(self) -> "Training":
        """A copy of this rank's replica that is alone: no wrapper, no exchange of gradients.

        Its learning rate is zero: ranks on their own could leave the path on which losses are
        finite, and the work of an iteration is the same.
        """
        workload, device = self.cell.workload, self.strategy.devices[0]
        replica = models.build(workload).to(device)  # a trained one may hold what cannot be copied
        replica.load_state_dict(self.replica.state_dict())
        optimizer = make_optimizer(workload, replica, lr=0.0)
        return replace(self, replica=replica, model=replica, optimizer=optimizer, exchanges=False)


def make_optimizer(
    workload: Workload, model: nn.Module, lr: float | None = None
) -> torch.optim.Optimizer:
    """SGD as the workload says."""
    return torch.optim.SGD(
        model.parameters(),
        workload.lr if lr is None else lr,
        workload.momentum,
        weight_decay=workload.weight_decay,
    )


def make_training(cell: Cell, strategy: Single, data_root: Path) -> Training:
    """Open the data, build the model (the same on all ranks), wrap it, make the optimizer."""
    if cell.device is Device.CUDA:
        # Shapes repeat: the warm-up epoch pays for the search.
        torch.backends.cudnn.benchmark = True
    workload = cell.workload
    data = datasets.open_data(workload, data_root)
    datasets.check_length(workload, data)
    datasets.seed_everything(cell.seed)
    replica = models.build(workload).to(strategy.devices[0])
    model = strategy.wrap(replica)
    loss = models.build_loss(workload)
    # From here on ranks differ: each shuffles and augments its own images.
    datasets.seed_everything(1_000 * cell.seed + strategy.place.rank)
    sampler = strategy.sampler(data.train)
    return Training(
        cell=cell,
        strategy=strategy,
        replica=replica,
        model=model,
        optimizer=make_optimizer(workload, model),
        loss=loss,
        loader=datasets.train_loader(data.train, strategy.loader_batch, cell, sampler),
        sampler=sampler,
        test_images=data.test,
    )
