"""The trained replica quantized: on the CPU, with images of the cell's own data set."""

import torch
from torch import Tensor
from torch.utils.data import Subset

from hpml_jobs.core.quantization import Quantize, Quantized
from hpml_jobs.worker.data import datasets
from hpml_jobs.worker.fork_safety import await_idle_threads
from hpml_jobs.worker.quantization.steps import quantize
from hpml_jobs.worker.training import Training


def quantize_replica(training: Training, asked: Quantize) -> Quantized:
    """Quantize a copy of the replica; training images profile it, the whole test set tests it.

    The training images are drawn by the cell's seed, and cropped and flipped as in training.

    Raises:
        HpmlError: what `quantize` cannot do.
    """
    cell, images, test = training.cell, training.loader.dataset, training.test_images
    assert test is not None  # noqa: S101 -- seen to by check_images
    chance = torch.Generator().manual_seed(cell.seed)
    drawn = torch.randperm(datasets.length(images), generator=chance)[: asked.calibration]
    model = training.copied_replica().eval()
    calibration = _batches(training, Subset(images, drawn.tolist()))
    return quantize(model, calibration, _batches(training, test), asked)


def _batches(training: Training, images: datasets.Images) -> list[tuple[Tensor, Tensor]]:
    """All these images on the CPU: they are gone through many times."""
    await_idle_threads()
    return [(inputs, targets) for inputs, targets in datasets.test_loader(images, training.cell)]
