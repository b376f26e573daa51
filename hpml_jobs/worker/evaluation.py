"""Loss and accuracy of a rank's replica on the test set."""

from typing import NamedTuple

import torch

from hpml_jobs.core.measurements import Share
from hpml_jobs.worker.data import datasets
from hpml_jobs.worker.data.loaders import BatchLoader
from hpml_jobs.worker.epochs import are_class_scores, count_correct
from hpml_jobs.worker.fork_safety import await_idle_threads
from hpml_jobs.worker.training import Training, preserved_buffers


class Evaluation(NamedTuple):
    """Mean loss and accuracy on the whole test set; None and 0 samples if there is none.

    The accuracy is None too if outputs are not class scores.
    """

    loss: float | None = None
    accuracy: float | None = None
    samples: int = 0


def evaluate(training: Training) -> Evaluation:
    """Evaluate this rank's replica on the whole test set."""
    images = training.loading.test_loader()
    if images is None:
        return Evaluation()
    total = _evaluate_on(training, images)
    if not total.samples:
        return Evaluation()
    accuracy = None if total.correct is None else total.correct / total.samples
    return Evaluation(total.loss_sum / total.samples, accuracy, total.samples)


def evaluate_share(training: Training) -> Share | None:
    """Evaluate this rank's replica on its share of the test set; return None without a test set.

    Training is not affected: buffers and random state are restored.
    """
    rank, _, world_size = training.strategy.placement
    share = training.loading.test_loader(rank, world_size)
    if share is None:
        return None
    cuda_indices = training.strategy.cuda_indices
    with preserved_buffers(training.replica), datasets.preserved_random_state(cuda_indices):
        return _evaluate_on(training, share)


def _evaluate_on(training: Training, images: BatchLoader) -> Share:
    """Return summed loss and correct samples of the replica; 0 samples without images.

    Ranks may have different numbers of batches: no rank waits for another one in forward.
    """
    device = training.strategy.devices[0]
    samples, classifies = 0, True
    with torch.no_grad(), training.strategy.whole(training.replica):
        training.strategy.sync_buffers(training.replica)
        loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        correct = torch.zeros((), dtype=torch.int64, device=device)
        training.replica.eval()
        await_idle_threads()
        for batch in images:
            inputs, labels = images.to_device(batch)
            with training.steps.forward():
                outputs = training.replica(training.steps.in_layout(inputs))
                loss = training.loss(outputs, labels)
            loss_sum += loss * len(labels)
            correct += count_correct(outputs, labels)
            samples += len(labels)
            classifies = classifies and are_class_scores(outputs, labels)
        hits = int(correct.item()) if classifies else None
        return Share(loss_sum=loss_sum.item(), correct=hits, samples=samples)
