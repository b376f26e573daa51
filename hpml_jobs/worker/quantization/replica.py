"""Quantization of a cell's trained replica, on the CPU, with the cell's own images."""

import torch
from torch import Tensor
from torch.utils.data import Subset

from hpml_jobs.core.quantization import Quantize, Quantized
from hpml_jobs.worker.data import datasets
from hpml_jobs.worker.data.loaders import test_loader
from hpml_jobs.worker.fork_safety import await_idle_threads
from hpml_jobs.worker.quantization.steps import quantize
from hpml_jobs.worker.training import Training


def quantize_replica(training: Training, settings: Quantize) -> Quantized:
    """Quantize a copy of the replica and evaluate it on the whole test set.

    The calibration images are training images chosen by the cell's seed, cropped and flipped as in
    training.

    Raises:
        HpmlError: as `quantize`.
    """
    cell, images, test = training.cell, training.loader.dataset, training.test_images
    assert test is not None  # noqa: S101 -- check_images has refused other data
    generator = torch.Generator().manual_seed(cell.seed)
    order = torch.randperm(datasets.length(images), generator=generator)
    indices = order[: settings.calibration].tolist()
    model = training.copy_replica().eval()
    calibration = _batches(training, Subset(images, indices))
    return quantize(model, calibration, _batches(training, test), settings)


def _batches(training: Training, images: datasets.Images) -> list[tuple[Tensor, Tensor]]:
    """Load all images into memory, because every step needs them."""
    await_idle_threads()
    loader = test_loader(images, training.cell, training.strategy.devices[0])
    return [(inputs, targets) for inputs, targets in loader]
