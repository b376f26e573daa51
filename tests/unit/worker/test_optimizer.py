"""Learning rates step by step, compared with the formulas of Goyal et al. 2017."""

import pytest
import torch
from torch import nn

from hpml_jobs.core.recipe import Recipe
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.worker.optimizer import make_optimizer, make_schedule, norm_parameters

from .conftest import cpu_cell

ITERATIONS = 10
LR = 0.05  # of the digits


def rates(recipe, *, epochs=5, gpus=4, batch=128):
    """The learning rate of every iteration of a run."""
    cell = cpu_cell(gpus=gpus, batch=batch, epochs=epochs, recipe=recipe, strategy=strategy(gpus))
    optimizer = make_optimizer(cell, nn.Linear(2, 2))
    schedule = make_schedule(cell, optimizer, ITERATIONS)
    values = []
    for _ in range(epochs * ITERATIONS):
        values.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if schedule:
            schedule.step()
    return values


def strategy(gpus):
    return Strategy.DDP if gpus > 1 else Strategy.SINGLE


def test_plain_keeps_workload_rate_at_any_batch():
    assert set(rates(Recipe())) == {LR}


@pytest.mark.parametrize(("gpus", "batch", "k"), [(4, 128, 4), (2, 32, 0.5), (1, 128, 1)])
def test_scaled_multiplies_rate_with_global_batch(gpus, batch, k):
    assert set(rates(Recipe(name="scaled", scaled=True), gpus=gpus, batch=batch)) == {k * LR}


def test_reference_batch_is_where_rate_is_unscaled():
    assert set(rates(Recipe(name="scaled", scaled=True, reference_batch=256))) == {2 * LR}


def test_warmup_starts_at_workload_rate_and_is_linear():
    """Section 2.2: from eta to k eta in constant increments, then k eta."""
    values = rates(Recipe(name="warmup", scaled=True, warmup_epochs=2))
    k, warmup = 4, 2 * ITERATIONS
    expected = [LR + (k - 1) * LR * min(step, warmup) / warmup for step in range(5 * ITERATIONS)]
    assert values == pytest.approx(expected, rel=1e-12)
    assert values[0] == LR
    assert values[warmup] == pytest.approx(k * LR)


def test_warmup_of_fractional_epochs_is_accepted():
    values = rates(Recipe(name="warmup", scaled=True, warmup_epochs=0.5))
    assert values[4] < values[5] == pytest.approx(4 * LR)


def test_shortest_warmup_is_one_iteration():
    values = rates(Recipe(name="warmup", scaled=True, warmup_epochs=0.01))
    assert values[0] == LR
    assert set(values[1:]) == {4 * LR}


def test_no_warmup_to_a_smaller_rate():
    assert set(rates(Recipe(name="warmup", scaled=True, warmup_epochs=2), batch=16)) == {LR / 2}


def test_rate_drops_to_a_tenth_after_given_epochs():
    """Section 5.1: divided by ten after epochs 30, 60 and 80 of 90."""
    recipe = Recipe(name="all", scaled=True, warmup_epochs=1, drop_epochs=(3, 4))
    values = rates(recipe)
    ends = [values[epoch * ITERATIONS - 1] for epoch in range(2, 6)]
    assert ends == pytest.approx([4 * LR, 4 * LR, 0.4 * LR, 0.04 * LR])


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


@pytest.mark.parametrize("decay", [True, False])
def test_no_norm_decay_leaves_batchnorm_parameters_unshrunk(decay):
    """With zero gradients a step shrinks parameters by lr x decay, and leaves the others."""
    model = network()
    recipe = Recipe(name="goyal", decay_norm=decay)
    cell = cpu_cell(recipe=recipe)
    optimizer = make_optimizer(cell, model)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    undecayed = {id(parameter) for parameter in norm_parameters(model)}
    assert len(undecayed) == 2
    shrink = 1 - LR * cell.workload.weight_decay
    for parameter, old in zip(model.parameters(), before, strict=True):
        is_kept = id(parameter) in undecayed and not decay
        torch.testing.assert_close(parameter.detach(), old if is_kept else old * shrink)


def test_momentum_needs_no_correction_at_rate_changes():
    """Remark 2: v = m v + eta g needs v scaled by eta'/eta; torch's u = m u + g does not."""
    momentum, learning_rates = 0.9, [0.1, 0.2, 0.4, 0.1]
    gradients = [1.0, -0.5, 2.0, 0.3]
    weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = torch.optim.SGD([weight], learning_rates[0], momentum)
    corrected = uncorrected = v = w = 0.0
    last = learning_rates[0]
    for rate, gradient in zip(learning_rates, gradients, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        weight.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
        v = momentum * (rate / last) * v + rate * gradient
        w = momentum * w + rate * gradient
        corrected, uncorrected, last = corrected - v, uncorrected - w, rate
    assert weight.item() == pytest.approx(corrected, rel=1e-12)
    assert abs(weight.item() - uncorrected) > 0.05
