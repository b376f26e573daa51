"""How a replica does on the test set."""

import msgspec
import torch

from hpml_jobs.worker import data as datasets
from hpml_jobs.worker.epochs import count_correct
from hpml_jobs.worker.training import Training


class Tested(msgspec.Struct, frozen=True):
    """Mean loss and accuracy on the whole test set; None and 0 where there is none."""

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
    if not samples:
        return Tested()
    return Tested(loss_sum.item() / samples, correct.item() / samples, samples)
