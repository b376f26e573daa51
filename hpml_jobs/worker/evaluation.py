"""How a replica does on the test set."""

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec
import numpy as np
import torch

from hpml_jobs.core.measurements import Share
from hpml_jobs.worker.data import datasets
from hpml_jobs.worker.epochs import count_correct, tells_classes
from hpml_jobs.worker.fork_safety import await_idle_threads
from hpml_jobs.worker.training import Batch, Training, same_buffers


class Tested(msgspec.Struct, frozen=True):
    """Mean loss and accuracy on the whole test set; None and 0 where there is none.

    The accuracy is None too where outputs are not class scores.
    """

    loss: float | None = None
    accuracy: float | None = None
    samples: int = 0


def test(training: Training) -> Tested:
    """Every rank tests its own replica on the whole test set."""
    found = _pass_over(training, training.test_images)
    if not found.samples:
        return Tested()
    accuracy = None if found.correct is None else found.correct / found.samples
    return Tested(found.loss_sum / found.samples, accuracy, found.samples)


def test_share(training: Training) -> Share | None:
    """Every rank tests its own replica on its share of the test set; None without one.

    Nothing that training goes on with changes: buffers and random numbers are put back.
    """
    images, place = training.test_images, training.strategy.place
    if images is None:
        return None
    with same_buffers(training.replica), _same_chance(training):
        return _pass_over(training, datasets.share(images, place.rank, place.processes))


@contextmanager
def _same_chance(training: Training) -> Iterator[None]:
    """What is drawn inside does not change what is drawn after it."""
    drawn, numbers = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=training.strategy.cards):
        yield
    random.setstate(drawn)
    np.random.set_state(numbers)


def _batches(training: Training, images: datasets.Images | None) -> Iterable[Batch]:
    return () if images is None else datasets.test_loader(images, training.cell)


@torch.no_grad()
def _pass_over(training: Training, images: datasets.Images | None) -> Share:
    training.strategy.settle(training.replica)
    device = training.strategy.devices[0]
    loss_sum = torch.zeros((), dtype=torch.float64, device=device)
    correct = torch.zeros((), dtype=torch.int64, device=device)
    samples, classes = 0, True
    training.replica.eval()
    await_idle_threads()
    for inputs, targets in _batches(training, images):
        wanted = targets.to(device, non_blocking=True)
        outputs = training.replica(inputs.to(device, non_blocking=True))
        loss_sum += training.loss(outputs, wanted) * len(targets)
        correct += count_correct(outputs, wanted)
        samples += len(targets)
        classes = classes and tells_classes(outputs, wanted)
    return Share(
        loss_sum=loss_sum.item(),
        correct=int(correct.item()) if classes else None,
        samples=samples,
    )
