"""One rank of a cell from top to bottom: make ready, warm up, measure, test, leave the record."""

import os
import resource
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch
from torch import Tensor, nn

from hpml_jobs.attempt import HOST_VARIABLE, AttemptFolder
from hpml_jobs.cell import Cell, CellFile, Device
from hpml_jobs.errors import HpmlError
from hpml_jobs.record import Epoch, Rank
from hpml_jobs.worker import data as datasets
from hpml_jobs.worker import facts, models
from hpml_jobs.worker.devices import devices_for
from hpml_jobs.worker.outcome import IterationArrays, Measured, leave_record, say_progress
from hpml_jobs.worker.strategies import STRATEGIES, Sampler, Single, this_place
from hpml_jobs.worker.timing import EpochClock, Times

ROLES = ("warmup", "timed")
"""The epochs of protocol=lab."""


def measure(file: CellFile, folder: AttemptFolder) -> None:
    """Run one rank of the cell; rank 0 leaves the record in the attempt's folder."""
    cell = file.cell
    torch.set_num_threads(cell.threads)
    torch.set_num_interop_threads(cell.threads)
    place = this_place(cell)
    devices = devices_for(cell, place.local_rank)
    strategy = STRATEGIES[cell.strategy](cell, place, devices)
    strategy.setup()

    training = make_training(cell, strategy, Path(file.data_root))
    epochs = []
    for number, role in enumerate(ROLES):
        say_progress(folder, place.rank, epoch=number + 1, epochs=len(ROLES), role=role)
        epoch, arrays = train_epoch(training, number, role)
        epochs.append(epoch)
    say_progress(folder, place.rank, epoch=len(ROLES), epochs=len(ROLES), role="test")
    mine = describe_rank(training, tuple(epochs), test(training))

    everyone = strategy.gather(Measured(mine, arrays))
    if everyone is not None:
        model = models.describe(cell.workload.model, training.replica)
        found = facts.gather(cell, backend=strategy.backend)
        leave_record(folder, file, everyone, model, found)
    strategy.close()


@dataclass
class Training:
    """All that an epoch needs. `replica` is this rank's model, `model` is it as it is trained."""

    cell: Cell
    strategy: Single
    replica: nn.Module
    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss: models.Loss
    loader: datasets.Loader
    sampler: Sampler
    test_images: datasets.Images | None


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
    optimizer = torch.optim.SGD(
        model.parameters(), workload.lr, workload.momentum, weight_decay=workload.weight_decay
    )
    # From here on ranks differ: each shuffles and augments its own images.
    datasets.seed_everything(1_000 * cell.seed + strategy.place.rank)
    sampler = strategy.sampler(data.train)
    loader = datasets.train_loader(data.train, strategy.loader_batch, cell, sampler)
    loss = models.build_loss(workload)
    return Training(cell, strategy, replica, model, optimizer, loss, loader, sampler, data.test)


def train_epoch(training: Training, number: int, role: str) -> tuple[Epoch, IterationArrays]:
    """One pass over the training images; nothing in the loop waits for the device."""
    t, device = training, training.strategy.devices[0]
    if t.sampler is not None:
        t.sampler.set_epoch(number)  # else every epoch has the same order and the same shares
    t.model.train()
    losses = torch.zeros(len(t.loader), device=device)
    correct = torch.zeros((), dtype=torch.int64, device=device)
    sizes = []
    with EpochClock(t.strategy.devices, len(t.loader), t.strategy.barrier) as clock:
        for index, (images, targets) in enumerate(t.loader):
            clock.mark()
            inputs = images.to(device, non_blocking=True)
            wanted = targets.to(device, non_blocking=True)
            outputs = t.model(inputs)
            loss = t.loss(outputs, wanted)
            loss.backward()  # type: ignore[no-untyped-call]
            t.optimizer.step()
            t.optimizer.zero_grad()
            losses[index] = loss.detach()
            correct += count_correct(outputs, wanted)
            sizes.append(len(targets))
            clock.mark()
    seen = Seen(losses.cpu(), int(correct.item()), sizes)
    return summarise(t.cell, role, clock.read(), seen)


def count_correct(outputs: Tensor, targets: Tensor) -> Tensor:
    """How many of a batch are right, on the device; 0 where targets are not class numbers."""
    if outputs.ndim != 2 or targets.ndim != 1 or targets.is_floating_point():
        return targets.new_zeros((), dtype=torch.int64)
    return (outputs.detach().argmax(1) == targets).sum()


class Seen(NamedTuple):
    """What an epoch showed: mean loss and number of samples per iteration, correct in all."""

    losses: Tensor
    correct: int
    sizes: list[int]


def summarise(cell: Cell, role: str, times: Times, seen: Seen) -> tuple[Epoch, IterationArrays]:
    """The epoch as this rank saw it; loss and accuracy are means over the samples seen."""
    bad = torch.nonzero(~torch.isfinite(seen.losses)).flatten()
    if len(bad):
        raise HpmlError(
            f"the loss is not finite from iteration {int(bad[0]) + 1} of the {role} epoch on "
            f"(batch={cell.batch} x gpus={cell.gpus}, lr={cell.workload.lr}): "
            f"take a smaller one, e.g. workload.lr={cell.workload.lr / 10:g}"
        )
    samples = sum(seen.sizes)
    weights = torch.tensor(seen.sizes, dtype=torch.float64)
    mean_loss = float(seen.losses.double() @ weights) / samples
    epoch = Epoch(
        role=role,
        epoch_s=times.epoch_s,
        stall_s=times.stall_total_s,
        iterations=len(seen.sizes),
        samples=samples,
        loss=mean_loss,
        accuracy=seen.correct / samples,
    )
    return epoch, IterationArrays(times.step_s, times.stall_s, seen.losses.numpy())


class Tested(msgspec.Struct, frozen=True):
    """How a replica does on the whole test set; None and 0 where there is none."""

    loss: float | None = None
    accuracy: float | None = None
    samples: int = 0


@torch.no_grad()
def test(training: Training) -> Tested:
    """Every rank tests its own replica on the whole test set."""
    training.strategy.settle(training.replica)
    if training.test_images is None:
        return Tested()
    device = training.strategy.devices[0]
    training.replica.eval()
    loss_sum = torch.zeros((), dtype=torch.float64, device=device)
    correct = torch.zeros((), dtype=torch.int64, device=device)
    samples = 0
    for images, targets in datasets.test_loader(training.test_images, training.cell):
        wanted = targets.to(device, non_blocking=True)
        outputs = training.replica(images.to(device, non_blocking=True))
        loss_sum += training.loss(outputs, wanted) * len(targets)
        correct += count_correct(outputs, wanted)
        samples += len(targets)
    return Tested(loss_sum.item() / samples, correct.item() / samples, samples)


def describe_rank(training: Training, epochs: tuple[Epoch, ...], tested: Tested) -> Rank:
    """What this process measured, and where."""
    cell, strategy = training.cell, training.strategy
    return Rank(
        rank=strategy.place.rank,
        local_rank=strategy.place.local_rank,
        host=os.environ.get(HOST_VARIABLE) or socket.gethostname(),
        devices=facts.device_names(strategy.devices),
        device_uuids=facts.device_uuids(strategy.devices),
        affinity=facts.affinity(),
        threads=torch.get_num_threads(),
        loader_workers=cell.loader_workers,
        epochs=epochs,
        test_loss=tested.loss,
        test_accuracy=tested.accuracy,
        test_samples=tested.samples,
        peak_memory_bytes=peak_memory_bytes(training),
    )


def peak_memory_bytes(training: Training) -> int:
    """The most that was in use: tensors on the fullest CUDA device, else this process's memory."""
    if training.cell.device is Device.CUDA:
        return max(torch.cuda.max_memory_allocated(device) for device in training.strategy.devices)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
