"""What an epoch needs: data, model, optimizer, tied together by the cell's strategy."""

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import RandomSampler

from hpml_jobs.core.cell import Cell, Device, SyncBuffers
from hpml_jobs.core.measurements import Card
from hpml_jobs.worker import models
from hpml_jobs.worker.data import datasets
from hpml_jobs.worker.data.sampling import Noted
from hpml_jobs.worker.optimizer import make_optimizer, make_schedule
from hpml_jobs.worker.quantization.images import check_images
from hpml_jobs.worker.quantization.layers import check
from hpml_jobs.worker.strategies import Sampler, Single
from hpml_jobs.worker.syncbn import over_all_ranks

REBUILDING = 2
"""Iterations after which DDP has rebuilt its buckets: the first still has those it began with."""

Batch = tuple[Any, Any]


@dataclass
class Training:
    """All that an epoch needs. `replica` is this rank's model, `model` is it as it is trained.

    `order` is what the loader draws images by; `sampler` within it is told the epoch, where ranks
    have shares. `schedule` changes the learning rate after every iteration, where it changes.
    `exchanges` is false on a throw-away copy whose gradients never meet. `last` is the batch that
    was on the device last; `cards` are the GPUs as they were at the end of an instrumented epoch.
    """

    cell: Cell
    strategy: Single
    replica: nn.Module
    model: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: LRScheduler | None
    loss: models.Loss
    loader: datasets.Loader
    sampler: Sampler
    order: Noted
    test_images: datasets.Images | None
    exchanges: bool = True
    last: Batch | None = None
    cards: tuple[Card, ...] = ()

    def batches(self, number: int) -> Iterable[Batch]:
        """The batches of an epoch, whose loader workers start when they are iterated over."""
        if self.sampler is not None:
            # Left out, every epoch has the order and the shares of epoch 0 (lab Q5).
            self.sampler.set_epoch(number if self.cell.set_epoch else 0)
        return self.loader

    def wrap_anew(self, *, observed: bool) -> None:
        """Wrap the model anew, with eyes on the collectives or without; nothing trained changes.

        So the timed epoch runs bare, and the instrumented one after it is watched. DDP's new
        buckets settle in two passes without a step; buffers and random numbers are put back.
        """
        self.model = self.replica
        gc.collect()  # the wrapper goes, and with it its hooks on the parameters
        with same_buffers(self.replica):  # DDP's constructor and its forward send rank 0's to all
            self.model = self.strategy.wrap(self.replica, observed=observed)
            if self.strategy.overlaps and self.last is not None:
                self._settle_buckets(self.last)

    def _settle_buckets(self, batch: Batch) -> None:
        """Passes without a step, after which DDP has rebuilt its buckets."""
        self.model.train()  # a test may have been made since
        with torch.random.fork_rng(devices=self.strategy.cards):
            for _ in range(REBUILDING):
                self.loss(self.model(batch[0]), batch[1]).backward()  # type: ignore[no-untyped-call]
                self.optimizer.zero_grad()

    def samples(self) -> Batch:
        """Two training samples (one where a batch is one) as a batch on the CPU."""
        batch: Batch = datasets.first(self.loader.dataset, min(2, self.cell.batch))
        return batch

    def copied_replica(self) -> nn.Module:
        """This rank's replica built anew on the CPU: a trained one may hold what has no copy."""
        replica = models.build(self.cell.workload)
        replica.load_state_dict(self.replica.state_dict())
        return replica

    def throwaway(self) -> "Training":
        """A copy of this rank's replica that is alone: no wrapper, no exchange of gradients.

        Its learning rate is zero: ranks on their own could leave the path on which losses are
        finite, and the work of an iteration is the same.
        """
        replica = self.copied_replica().to(self.strategy.devices[0])
        optimizer = make_optimizer(self.cell, replica)
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        return replace(
            self,
            replica=replica,
            model=replica,
            optimizer=optimizer,
            schedule=None,
            exchanges=False,
        )


@contextmanager
def same_buffers(replica: nn.Module) -> Iterator[None]:
    """Whatever is done inside, the replica has its buffers again after it."""
    buffers = [buffer.clone() for buffer in replica.buffers()]
    yield
    with torch.no_grad():
        for buffer, before in zip(replica.buffers(), buffers, strict=True):
            buffer.copy_(before)


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
    if cell.quantize is not None:  # what it cannot do is said before training, not after it
        check(replica)
        check_images(cell, data)
    if cell.sync_buffers is SyncBuffers.SYNCBN:
        replica = over_all_ranks(replica, cell.device)
    model = strategy.wrap(replica)
    loss = models.build_loss(workload)
    # From here on ranks differ: each shuffles and augments its own images.
    datasets.seed_everything(1_000 * cell.seed + strategy.place.rank)
    sampler = strategy.sampler(data.train)
    order = Noted(RandomSampler(datasets.sized(data.train)) if sampler is None else sampler)
    loader = datasets.train_loader(data.train, strategy.loader_batch, cell, order)
    optimizer = make_optimizer(cell, model)
    return Training(
        cell=cell,
        strategy=strategy,
        replica=replica,
        model=model,
        optimizer=optimizer,
        schedule=make_schedule(cell, optimizer, len(loader)),
        loss=loss,
        loader=loader,
        sampler=sampler,
        order=order,
        test_images=data.test,
    )
