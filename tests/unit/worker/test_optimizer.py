"""Learning rates step by step, compared with the formulas of Goyal et al. 2017."""

import sys

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.recipe import Recipe
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.worker.data.user_code import check_args
from hpml_jobs.worker.optimizer import make_optimizer, make_schedule, norm_parameters

from .conftest import SMALL_DIGITS, cpu_cell

ITERATIONS = 10
LR = 0.05  # of the digits


def rates(recipe, *, epochs=5, gpus=4, batch=128):
    """The learning rate of every iteration of a run."""
    cell = cpu_cell(
        gpus=gpus, batch=batch, epochs=epochs, recipe=recipe, strategy=strategy(gpus)
    )
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


@pytest.mark.parametrize(
    ("gpus", "batch", "k"), [(4, 128, 4), (2, 32, 0.5), (1, 128, 1)]
)
def test_scaled_multiplies_rate_with_global_batch(gpus, batch, k):
    assert set(rates(Recipe(name="scaled", scaled=True), gpus=gpus, batch=batch)) == {
        k * LR
    }


def test_warmup_starts_at_workload_rate_and_is_linear():
    """Section 2.2: from eta to k eta in constant increments, then k eta."""
    values = rates(Recipe(name="warmup", scaled=True, warmup_epochs=2))
    k, warmup = 4, 2 * ITERATIONS
    expected = [
        LR + (k - 1) * LR * min(step, warmup) / warmup for step in range(5 * ITERATIONS)
    ]
    assert values == pytest.approx(expected, rel=1e-12)
    assert values[0] == LR
    assert values[warmup] == pytest.approx(k * LR)


def test_no_warmup_to_a_smaller_rate():
    assert set(
        rates(Recipe(name="warmup", scaled=True, warmup_epochs=2), batch=16)
    ) == {LR / 2}


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


def test_adamw_decays_matrices_only():
    """With zero gradients the first step only decays: by lr x decay, as SGD."""
    model = network()
    workload = replace(SMALL_DIGITS, optimizer="adamw", weight_decay=0.1)
    optimizer = make_optimizer(cpu_cell(workload), model)
    assert {group["betas"] for group in optimizer.param_groups} == {(0.9, 0.95)}
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for parameter, old in zip(model.parameters(), before, strict=True):
        shrink = 1 - LR * 0.1 if parameter.ndim == 2 else 1
        torch.testing.assert_close(parameter.detach(), old * shrink)


OWN = """
import torch

def lion(model, lr, momentum, heavy=1, nesterov=False):
    return torch.optim.SGD(model.parameters(), lr * heavy, momentum, nesterov=nesterov)

def decay(iterations, epochs, start=1.0):
    return lambda iteration: start * (1 - iteration / iterations)

def closure(model):
    return torch.optim.LBFGS([torch.zeros(1)])

def parameters(model):
    return model.parameters()

def constant(iterations):
    return 0.5

def growing():
    return lambda iteration: 0.5 - iteration

def broken():
    return lambda iteration: 1 / iteration
"""


@pytest.fixture(scope="module")
def own_code(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_steps.py").write_text(OWN)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield
    sys.modules.pop("own_steps", None)


def own_cell(optimizer="lion", schedule="decay", **args):
    workload = replace(
        SMALL_DIGITS,
        optimizer=f"own_steps:{optimizer}",
        schedule=f"own_steps:{schedule}",
        args=args,
    )
    return cpu_cell(workload, epochs=2)


def test_own_optimizer_and_schedule_get_their_args(own_code):
    cell = own_cell(heavy=2, nesterov=True, start=0.8)
    optimizer = make_optimizer(cell, nn.Linear(2, 2))
    schedule = make_schedule(cell, optimizer, iterations=5)
    values = []
    for _ in range(12):  # two more than the cell trains
        values.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    factors = [0.8 * (1 - min(number, 9) / 10) for number in range(12)]
    assert values == pytest.approx([2 * LR * factor for factor in factors])
    assert optimizer.defaults["nesterov"] is True
    assert optimizer.defaults["momentum"] == 0.9


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("closure", "returned LBFGS without a parameter of the model"),
        ("parameters", "returned generator: return a torch.optim.Optimizer"),
    ],
)
def test_own_function_that_returns_no_optimizer_is_refused(own_code, function, message):
    with pytest.raises(HpmlError, match=message) as refused:
        make_optimizer(own_cell(optimizer=function), nn.Linear(2, 2))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("constant", "returned float: return a function from the iteration"),
        ("broken", "for iteration 0, raised ZeroDivisionError: division by zero"),
    ],
)
def test_own_function_that_returns_no_schedule_is_refused(own_code, function, message):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], 0.1)
    with pytest.raises(HpmlError, match=message) as refused:
        make_schedule(own_cell(schedule=function), optimizer, iterations=5)
    assert str(refused.value).startswith(f"workload.schedule=own_steps:{function}")


def test_own_factor_below_zero_ends_the_training(own_code):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], 0.1)
    schedule = make_schedule(own_cell(schedule="growing"), optimizer, iterations=5)
    optimizer.step()
    with pytest.raises(HpmlError, match=r"for iteration 1, returned -0\.5: the factor"):
        schedule.step()


def test_arg_that_no_function_takes_is_refused_with_those_that_they_take(own_code):
    workload = own_cell(heavi=2).workload
    with pytest.raises(
        HpmlError, match=r"workload\.args\.heavi: none .*; they take heavy,"
    ):
        check_args(workload)
    with pytest.raises(
        HpmlError, match=r"takes depth; they take heavy, nesterov, start"
    ):
        check_args(own_cell(depth=2).workload)
    check_args(own_cell(heavy=2, start=0.5).workload)
