"""Optimizer steps with all uninitialized memory full of NaN, and gradients that overflow."""

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from hpml_jobs.core.strategies import Device
from hpml_jobs.core.training_path import Precision, TrainingPath
from hpml_jobs.worker.optimizer import make_optimizer
from hpml_jobs.worker.path_steps import PathSteps

from .conftest import SMALL_DIGITS, cpu_cell

CPU = torch.device("cpu")
STEPS = 4

OPTIMIZERS = {
    "sgd": SMALL_DIGITS,
    "sgd without momentum": replace(SMALL_DIGITS, momentum=0.0),
    "adamw": replace(SMALL_DIGITS, optimizer="adamw"),
}


@pytest.fixture(autouse=True)
def _dirty_memory():
    """torch fills memory that nothing has written with NaN."""
    before = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    assert torch.empty(2).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = before


def cuda_cell(workload, precision=None, **settings):
    path = TrainingPath(precision=precision)
    return cpu_cell(workload, device=Device.CUDA, path=path, **settings)


def linear():
    torch.manual_seed(0)
    return nn.Linear(4, 3)


def train(cell, optimizer, steps, model, overflow):
    """Make `STEPS` steps with given gradients, of which those of some steps overflow."""
    generator = torch.Generator().manual_seed(1)
    for number in range(1, STEPS + 1):
        factors = [
            torch.randn(p.shape, generator=generator) for p in model.parameters()
        ]
        pairs = zip(model.parameters(), factors, strict=True)
        steps.backward(sum((parameter * factor).sum() for parameter, factor in pairs))
        if number in overflow:
            model.weight.grad[0, 0] = float("inf")
        steps.step(optimizer)
        optimizer.zero_grad()


def plain_training(cell, overflow):
    """The same without fused steps and loss scaling; a step that overflows is left out."""
    model, generator = linear(), torch.Generator().manual_seed(1)
    optimizer = make_optimizer(
        replace(cell, device=Device.CPU, path=TrainingPath()), model
    )
    assert not optimizer.defaults["fused"]
    for number in range(1, STEPS + 1):
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        if number not in overflow:
            optimizer.step()
    return model, optimizer


def states(optimizer):
    """The tensors of an optimizer's state."""
    return [
        {
            name: value
            for name, value in state.items()
            if isinstance(value, torch.Tensor)
        }
        for state in optimizer.state.values()
    ]


OVERFLOWS = [(1,), (2, STEPS)]
RUNS = [(p, ()) for p in (None, *Precision)] + [
    (Precision.FP16, steps) for steps in OVERFLOWS
]
"""Precisions and the steps whose gradients overflow; only fp16 leaves such steps out."""


@pytest.mark.parametrize(("precision", "overflow"), RUNS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_those_of_plain_training(name, precision, overflow):
    cell, model = cuda_cell(OPTIMIZERS[name], precision), linear()
    optimizer = make_optimizer(cell, model)
    assert optimizer.defaults["fused"]
    train(cell, optimizer, PathSteps(cell.path, CPU), model, overflow)
    expected, reference = plain_training(cell, overflow)
    torch.testing.assert_close(model.state_dict(), expected.state_dict())
    torch.testing.assert_close(states(optimizer), states(reference))


def test_model_without_a_fused_step_takes_the_plain_one():
    model = nn.Embedding(3, 2, sparse=True)
    workload = replace(SMALL_DIGITS, weight_decay=0.0)
    optimizer = make_optimizer(cuda_cell(workload), model)
    before = model.weight.detach().clone()
    model(torch.tensor([1])).sum().backward()
    optimizer.step()
    assert not torch.equal(model.weight, before)
