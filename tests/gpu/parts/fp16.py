"""Training in fp16 whose first step overflows: the step is left out, the weights stay finite."""

import math
from collections.abc import Iterator

import msgspec
import torch

from hpml_jobs.core.strategies import Device
from hpml_jobs.core.training_path import Precision, TrainingPath
from hpml_jobs.worker import models
from hpml_jobs.worker.optimizer import make_optimizer
from hpml_jobs.worker.path_steps import PathSteps
from tests.gpu.bench import Bench
from tests.gpu.catalog import OPTIMIZERS
from tests.gpu.figures import Figure

STEPS = 3


def measure(bench: Bench) -> Iterator[Figure]:
    """Train a few steps with each optimizer; the gradients of the first one overflow."""
    for optimizer in OPTIMIZERS:
        yield from _overflow(bench, optimizer)


def _overflow(bench: Bench, name: str) -> Iterator[Figure]:
    workload = msgspec.structs.replace(bench.sizes.workload, optimizer=name)
    path = TrainingPath(precision=Precision.FP16)
    # fused in a rehearsal too
    cell = bench.cell(device=Device.CUDA, workload=workload, path=path)
    steps = PathSteps(path, bench.torch_device)
    model, loss = steps.place(models.build(workload)), models.build_loss(workload)
    weights = list(model.parameters())
    before = [weight.detach().clone() for weight in weights]
    optimizer = make_optimizer(cell, model)
    images, targets = bench.resident_batches(1)[0]
    for number in range(STEPS):
        with steps.forward():
            error = loss(model(images), targets)
        steps.backward(error)
        if number == 0:
            gradient = weights[0].grad
            assert gradient is not None
            gradient.view(-1)[0] = math.inf
            _free_memory_of_nan(weights)
        steps.step(optimizer)
        optimizer.zero_grad()
        if number == 0:
            are_same = all(map(torch.equal, before, weights))
            yield Figure(key=f"skipped_{name}", value=float(are_same))
    are_finite = all(bool(weight.isfinite().all()) for weight in weights)
    yield Figure(key=f"finite_{name}", value=float(are_finite))


def _free_memory_of_nan(weights: list[torch.nn.Parameter]) -> None:
    """Write NaN into memory of the weights' sizes and free it for the next that asks for it."""
    blocks = [torch.full_like(weight, math.nan) for weight in weights]
    blocks.clear()
