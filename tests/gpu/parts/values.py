"""Pixels that the GPU augments and losses that it computes, against those of the CPU."""

from collections.abc import Iterator

import msgspec
import torch

from hpml_jobs.core.training_path import Precision, TrainingPath
from hpml_jobs.worker import models
from hpml_jobs.worker.data.device_loading import DeviceImages, Draws, ImageTensors
from hpml_jobs.worker.data.images import photo_transform
from hpml_jobs.worker.optimizer import make_optimizer
from hpml_jobs.worker.path_steps import PathSteps, set_modes
from tests.gpu.bench import Bench
from tests.gpu.figures import Figure

CPU = torch.device("cpu")
SIZE, IMAGES = 32, 256
BATCH, STEPS = 16, 3
LR = 0.01
"""Small, so that steps amplify rounding little."""


def measure(bench: Bench) -> Iterator[Figure]:
    """Augment the same images with the same draws, and train the same steps, on both."""
    yield Figure(key="pixels", value=_pixels(bench))
    of_cpu, of_device = (_losses(bench, device) for device in (CPU, bench.torch_device))
    differences = [
        abs(here / there - 1) for here, there in zip(of_device, of_cpu, strict=True)
    ]
    note = f"{of_device[0]:.4g} to {of_device[-1]:.4g}"
    yield Figure(key="losses", value=max(differences), note=note)


def _pixels(bench: Bench) -> float:
    """Return the largest difference of a normalized pixel."""
    pixels = torch.randint(256, (IMAGES, 3, SIZE, SIZE), dtype=torch.uint8)
    numbers = torch.arange(IMAGES)
    tensors = ImageTensors(
        shape=(3, SIZE, SIZE),
        dtype=torch.uint8,
        read=lambda chosen: pixels[chosen],
        targets=numbers,
        transform=photo_transform(train=True),
    )
    images = DeviceImages(pixels, tensors, numbers)
    images.store(CPU)
    draws = images.draw(numbers.tolist(), None)
    of_cpu, _ = images.batch(draws, 0, IMAGES)
    images = DeviceImages(pixels, tensors, numbers)
    images.store(bench.torch_device)
    moved = Draws(
        *(values.to(bench.torch_device) for values in draws if values is not None)
    )
    of_device, _ = images.batch(moved, 0, IMAGES)
    return float((of_device.cpu() - of_cpu).abs().max())


def _losses(bench: Bench, device: torch.device) -> list[float]:
    """Return the losses of some steps in fp32 on a device."""
    workload = msgspec.structs.replace(bench.sizes.workload, lr=LR)
    cell = bench.cell(workload=workload, path=TrainingPath(precision=Precision.FP32))
    set_modes(cell, (device,))
    steps = PathSteps(cell.path, device)
    torch.manual_seed(0)
    model = steps.place(models.build(workload))
    loss, optimizer = models.build_loss(workload), make_optimizer(cell, model)
    images = torch.randn(
        BATCH, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0)
    )
    batch = images.to(device), torch.arange(BATCH, device=device) % workload.classes
    losses = []
    for _ in range(STEPS):
        error = loss(model(batch[0]), batch[1])
        steps.backward(error)
        steps.step(optimizer)
        optimizer.zero_grad()
        losses.append(error.item())
    return losses
