"""The inputs of an epoch: data, model and optimizer, wrapped by the cell's strategy."""

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import RandomSampler

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.strategies import Loader, SyncBuffers
from hpml_jobs.worker import models
from hpml_jobs.worker.data import datasets
from hpml_jobs.worker.data.loaders import (
    Batch,
    BatchLoader,
    Loading,
    RecordedSampler,
    WorkerLoading,
)
from hpml_jobs.worker.data.user_code import check_args
from hpml_jobs.worker.fork_safety import load_image_plugins
from hpml_jobs.worker.instruments.cards import CardReader, EnergyMeter
from hpml_jobs.worker.instruments.collectives import fingerprint
from hpml_jobs.worker.instruments.facts import device_uuids
from hpml_jobs.worker.instruments.recorder import MemoryMeter, StartupTimer
from hpml_jobs.worker.instruments.scheduling import SchedulingReader
from hpml_jobs.worker.optimizer import make_optimizer, make_schedule
from hpml_jobs.worker.path_steps import (
    MicroSteps,
    PathSteps,
    compiled,
    set_modes,
)
from hpml_jobs.worker.process_group import ParallelStrategy, Sampler

WARM_PASSES = 2
"""Passes with a batch of each size; torch.compile records a CUDA graph in the second one."""


@dataclass
class Training:
    """All that an epoch needs. `replica` is this rank's model, `model` is the wrapped replica.

    `compiled` runs the replica in `model`, compiled where the cell asks for it.
    `loading` makes loaders, of which `loader` has the training images. `order` is the sampler that
    it draws from, and records its order; `sampler` inside it is the sharding one, which must know
    the epoch. `steps` are those of an iteration that depend on the training path. `schedule`
    changes the learning rate after every iteration; None keeps it. `reduces_gradients` is false for
    a copy that trains alone. `scheduling` reads the operating system's accounts of an epoch,
    `energy` the GPUs' counters, `memory` torch's allocator, `cards` the GPUs' state after an epoch.
    `initial_hash` is the fingerprint of the user's own model before training. `last_batch` is the
    last batch on the device.
    """

    cell: Cell
    strategy: ParallelStrategy
    replica: nn.Module
    compiled: nn.Module
    model: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: LRScheduler | None
    loss: models.Loss
    steps: PathSteps
    loading: Loading
    loader: BatchLoader
    sampler: Sampler
    order: RecordedSampler
    test_images: datasets.Images | None
    scheduling: SchedulingReader
    energy: EnergyMeter
    memory: MemoryMeter
    cards: CardReader
    reduces_gradients: bool = True
    last_batch: Batch | None = None
    initial_hash: str | None = None

    def batches(self, number: int) -> Iterable[Any]:
        """Return the batches of an epoch for `to_device`; the first pass starts loader workers."""
        if self.sampler is not None:
            # Without set_epoch every epoch has the order and the shards of epoch 0 (lab Q5).
            self.sampler.set_epoch(number if self.cell.set_epoch else 0)
        return self.loader

    def to_device(self, batch: Any) -> Batch:
        """Return the inputs and targets of a batch on the device; the host does not wait."""
        inputs, targets = self.loader.to_device(batch)
        return self.steps.in_layout(inputs), targets

    def micro_steps(self, iterations: int | None = None) -> MicroSteps:
        """Return the micro-steps of an epoch, or of its first iterations."""
        accumulate, count = self.cell.path.accumulate, len(self.loader)
        if iterations:
            count = min(iterations * accumulate, count)
        return MicroSteps(
            accumulate, count, self.strategy.loader_batch, len(self.order)
        )

    def rewrap(self, *, instrumented: bool) -> None:
        """Wrap the model anew, instrumented or bare, without changing what has been trained.

        The timed epoch needs a bare wrapper, the epoch after it an instrumented one.
        """
        self.model = self.replica
        gc.collect()  # the old wrapper goes, and with it its hooks on the parameters
        # DDP broadcasts rank 0's when built and in forward
        with preserved_buffers(self.replica):
            self.model = self.strategy.wrap(self.compiled, instrumented=instrumented)
        self.settle()

    def settle(self, iterations: int = 0) -> None:
        """Run the settling passes of a wrapper that has trained so many iterations.

        DDP replaces its buckets in its first passes, and on CUDA times itself in the first ten.
        There is no optimizer step; buffers and random state are restored.
        """
        passes = self.strategy.settling_passes - iterations
        if self.strategy.overlaps and self.last_batch is not None and passes > 0:
            with preserved_buffers(self.replica):
                self._run_passes(self.last_batch, passes)

    def warm(self, *, step: bool = False) -> None:
        """Run iterations with batches of every size, which fill torch's cache of memory.

        With accumulation each has two micro-steps: in the second forward there are gradients.
        """
        micro_steps = min(2, self.cell.path.accumulate)
        with preserved_buffers(self.replica):
            for batch in self._batches_of_every_size():
                self._run_passes(batch, WARM_PASSES, micro_steps=micro_steps, step=step)

    def _run_passes(
        self, batch: Batch, number: int, *, micro_steps: int = 1, step: bool = False
    ) -> None:
        """Run so many iterations, with `step` also the optimizer's part of them."""
        self.model.train()  # an evaluation may have come in between
        with torch.random.fork_rng(devices=self.strategy.gpus):
            for _ in range(number):
                for _ in range(micro_steps):
                    with self.steps.forward():
                        loss = self.loss(self.model(batch[0]), batch[1])
                    self.steps.backward(loss)
                if self.reduces_gradients:
                    self.strategy.reduce_gradients(self.replica)
                if step:
                    self.steps.step(self.optimizer)
                self.optimizer.zero_grad()

    def sample_batch(self) -> Batch:
        """Return a batch of two training samples (one if the cell's batch is one) on the CPU."""
        batch: Batch = datasets.first_batch(
            self.loader.dataset, min(2, self.cell.batch)
        )
        return batch

    def copy_replica(self) -> nn.Module:
        """Return a copy of this rank's replica on the CPU.

        It is built anew: a trained model may hold objects that cannot be copied.
        """
        replica = models.build(self.cell.workload)
        replica.load_state_dict(self.strategy.state(self.replica))
        return replica

    def without_exchange(self) -> "Training":
        """Return a training of a copy of the replica, without wrapper and gradient exchange.

        Its learning rate is zero: ranks that train alone could diverge, and the work of an
        iteration is the same. It is warm: there is enough memory for it.
        """
        # GradScaler refuses gradients in fp16, and here they change nothing
        is_half = self.cell.strategy.traffic.casts_parameters
        steps = _steps(self.cell, self.strategy, scales_loss=not is_half)
        replica = self.strategy.local_copy(steps.place(self.copy_replica()))
        forward = compiled(replica, self.cell.path.compile)
        optimizer = make_optimizer(self.cell, replica)
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        alone = replace(
            self,
            replica=replica,
            compiled=forward,
            model=forward,
            optimizer=optimizer,
            steps=steps,
            schedule=None,
            reduces_gradients=False,
        )
        alone.warm(step=True)
        return alone

    def _batches_of_every_size(self) -> Iterator[Batch]:
        """Yield a whole batch, made of copies of the last one, and that one if it is smaller."""
        if self.last_batch is None:
            return
        inputs, targets = self.last_batch
        size = min(self.strategy.loader_batch, len(self.order))
        if len(targets) < size:
            copies = ceil(size / len(targets))
            whole = self.steps.in_layout(torch.cat([inputs] * copies)[:size])
            yield whole, torch.cat([targets] * copies)[:size]
        yield self.last_batch


@contextmanager
def preserved_buffers(replica: nn.Module) -> Iterator[None]:
    """Restore the replica's buffers at the end of the block."""
    saved = [buffer.clone() for buffer in replica.buffers()]
    yield
    with torch.no_grad():
        for buffer, content in zip(replica.buffers(), saved, strict=True):
            buffer.copy_(content)


def _steps(
    cell: Cell, strategy: ParallelStrategy, *, scales_loss: bool = True
) -> PathSteps:
    autocast = not cell.strategy.traffic.casts_parameters
    return PathSteps(
        cell.path, strategy.devices[0], autocast=autocast, scales_loss=scales_loss
    )


def make_training(
    cell: Cell,
    strategy: ParallelStrategy,
    data_root: Path,
    startup: StartupTimer | None = None,
) -> Training:
    """Open the data, build the model (equal on all ranks), wrap it, and make the optimizer.

    `startup` notes when the data are open.

    Raises:
        HpmlError: the data set or the model is missing, or is not what the cell needs.
    """
    set_modes(cell, strategy.devices)
    workload = cell.workload
    check_args(workload)
    data = datasets.open_data(workload, data_root)
    datasets.check_length(workload, data)
    startup = startup or StartupTimer()
    startup.end("data_s")
    steps = _steps(cell, strategy)
    datasets.seed_everything(cell.seed)
    replica = models.build(workload)
    initial_hash = fingerprint(replica.parameters()) if ":" in workload.model else None
    replica = strategy.place(replica, steps.place)
    if cell.quantize:  # refuse before training, not after it
        from hpml_jobs.worker.quantization.layers import check_quantizable  # noqa: PLC0415

        check_quantizable(cell, replica, data)
    if cell.sync_buffers is SyncBuffers.SYNCBN:
        # torch annotates no types here
        replica = nn.SyncBatchNorm.convert_sync_batchnorm(replica)  # type: ignore[no-untyped-call]
    forward = compiled(replica, cell.path.compile)
    model = strategy.wrap(forward)
    loss = models.build_loss(workload)
    # From here on ranks differ: each shuffles and augments its own images.
    datasets.seed_everything(1_000 * cell.seed + strategy.placement.rank)
    sampler = strategy.sampler(data.train)
    order = RecordedSampler(
        RandomSampler(datasets.sized(data.train)) if sampler is None else sampler
    )
    scheduling = SchedulingReader(cell.loader_workers)
    start_worker = scheduling.loader_waits.start_worker
    device = strategy.devices[0]
    loading: Loading = WorkerLoading(cell, data, device, start_worker)
    if cell.loader is Loader.DEVICE:
        from hpml_jobs.worker.data.device_loading import DeviceLoading  # noqa: PLC0415

        loading = DeviceLoading(cell, data, device)
    loader = loading.train_loader(strategy.loader_batch, order)
    load_image_plugins()
    optimizer = make_optimizer(cell, replica, strategy.sharded)
    return Training(
        cell=cell,
        strategy=strategy,
        replica=replica,
        compiled=forward,
        model=model,
        optimizer=optimizer,
        schedule=make_schedule(
            cell, optimizer, ceil(len(loader) / cell.path.accumulate)
        ),
        loss=loss,
        steps=steps,
        loading=loading,
        loader=loader,
        sampler=sampler,
        order=order,
        initial_hash=initial_hash,
        test_images=data.test,
        scheduling=scheduling,
        energy=EnergyMeter(device_uuids(strategy.devices)),
        memory=MemoryMeter(strategy.gpus),
        cards=CardReader(device_uuids(strategy.devices)),
    )
