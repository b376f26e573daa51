"""How a replica does on the test set."""

from collections.abc import Iterable

import msgspec
import torch

from hpml_jobs.measures import Share
from hpml_jobs.worker import data as datasets
from hpml_jobs.worker.epochs import count_correct
from hpml_jobs.worker.forking import await_idle_threads
from hpml_jobs.worker.training import Batch, Training


class Tested(msgspec.Struct, frozen=True):
    """Mean loss and accuracy on the whole test set; None and 0 where there is none."""

    loss: float | None = None
    accuracy: float | None = None
    samples: int = 0


def test(training: Training) -> Tested:
    """Every rank tests its own replica on the whole test set."""
    found = _pass_over(training, training.test_images)
    if not found.samples:
        return Tested()
    return Tested(found.loss_sum / found.samples, found.correct / found.samples, found.samples)


def test_share(training: Training) -> Share | None:
    """Every rank tests its own replica on its share of the test set; None without one.

    Nothing that training goes on with changes: only buffers become what the next forward of the
    wrapped model would make them.
    """
    images, place = training.test_images, training.strategy.place
    if images is None:
        return None
    return _pass_over(training, datasets.share(images, place.rank, place.processes))


def _batches(training: Training, images: datasets.Images | None) -> Iterable[Batch]:
    return () if images is None else datasets.test_loader(images, training.cell)


@torch.no_grad()
def _pass_over(training: Training, images: datasets.Images | None) -> Share:
    training.strategy.settle(training.replica)
    device = training.strategy.devices[0]
    loss_sum = torch.zeros((), dtype=torch.float64, device=device)
    correct = torch.zeros((), dtype=torch.int64, device=device)
    samples = 0
    training.replica.eval()
    await_idle_threads()
    for inputs, targets in _batches(training, images):
        wanted = targets.to(device, non_blocking=True)
        outputs = training.replica(inputs.to(device, non_blocking=True))
        loss_sum += training.loss(outputs, wanted) * len(targets)
        correct += count_correct(outputs, wanted)
        samples += len(targets)
    return Share(loss_sum=loss_sum.item(), correct=int(correct.item()), samples=samples)
