"""The optimizer of a cell, SGD, AdamW or the user's own one, and its learning rate by iteration."""

from collections.abc import Callable
from math import ceil, isfinite
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    LambdaLR,
    LinearLR,
    LRScheduler,
    MultiStepLR,
)

from hpml_jobs.core import workload as core
from hpml_jobs.core.cell import Cell
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.workload import Workload
from hpml_jobs.worker.data import user_code
from hpml_jobs.worker.process_group import MakeOptimizer

ADAMW_BETA2 = 0.95
"""The second beta of AdamW, as GPTs are trained with (nanoGPT; Brown et al. 2020); torch: 0.999."""

MATRIX_DIMENSIONS = 2
"""AdamW decays tensors of as many dimensions or more: weights of layers, not biases or norms."""


Factor = Callable[[int], float]
"""An iteration, from 0, to the learning rate's factor."""


def make_optimizer(
    cell: Cell,
    model: nn.Module,
    sharded: Callable[[type[Optimizer]], MakeOptimizer] | None = None,
) -> Optimizer:
    """Return the workload's optimizer with its learning rate times the recipe's factor k.

    `sharded` is the strategy's, which may keep a part of the state on each rank. On GPUs the step
    is torch's fused one: it skips an overflow of fp16 on the device, while the others wait for it.

    torch's SGD keeps u = m u + g and steps by lr x u: the learning rate is not part of the momentum
    buffer, so changing it needs no momentum correction (Goyal et al. 2017, remark 2).

    Raises:
        HpmlError: the user's function returns no optimizer of the model.
    """
    workload = cell.workload
    rate = workload.lr * cell.recipe.factor(cell.global_batch)
    if ":" in workload.optimizer:
        return own_optimizer(workload, model, rate)
    is_adamw = workload.optimizer == core.Optimizer.ADAMW
    kind: type[Optimizer] = AdamW if is_adamw else SGD
    make: MakeOptimizer = sharded(kind) if sharded else kind
    groups = _groups(cell, model, only_matrices=is_adamw)
    if is_adamw:
        fused = cell.device is Device.CUDA  # as nanoGPT and torchtitan train
        betas = (workload.momentum, ADAMW_BETA2)
        return make(groups, lr=rate, betas=betas, fused=fused or None)
    fused = _may_fuse_sgd(cell, model)
    optimizer = make(groups, lr=rate, momentum=workload.momentum, fused=fused or None)
    if fused and workload.momentum:
        _zero_momentum(_of_rank(optimizer))
    return optimizer


def _may_fuse_sgd(cell: Cell, model: nn.Module) -> bool:
    """Return whether torch's fused SGD can train a model.

    It has none for the shards of fsdp, complex parameters and sparse gradients (torch 2.14).
    """
    return (
        cell.device is Device.CUDA
        and cell.strategy is not Strategy.FSDP
        and all(parameter.is_floating_point() for parameter in model.parameters())
        and not any(getattr(module, "sparse", False) for module in model.modules())
    )


def _zero_momentum(optimizer: Optimizer) -> None:
    """Give SGD its momentum before the first step, as zeros: 0.9 x 0 + g is the first step's g."""
    # The fused step makes it of uninitialized memory, and leaves that as it is where the gradients
    # overflow (torch 2.14, optim/sgd.py, _fused_sgd).
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad:
                momentum = torch.zeros_like(parameter, requires_grad=False)
                optimizer.state[parameter]["momentum_buffer"] = momentum


def _of_rank(optimizer: Optimizer) -> Optimizer:
    """Return the optimizer of this rank's share in a ZeroRedundancyOptimizer; another as it is."""
    of_rank: Optimizer = getattr(optimizer, "optim", optimizer)
    return of_rank


def _groups(
    cell: Cell, model: nn.Module, *, only_matrices: bool
) -> list[dict[str, object]]:
    """Return the parameters with and without weight decay; a group without any is left out."""
    norms = {} if cell.recipe.decay_norm else {id(p): p for p in norm_parameters(model)}
    decayed: list[nn.Parameter] = []
    undecayed: list[nn.Parameter] = []
    for parameter in model.parameters():
        is_small = only_matrices and parameter.ndim < MATRIX_DIMENSIONS
        if is_small or id(parameter) in norms:
            undecayed.append(parameter)
        else:
            decayed.append(parameter)
    groups: list[dict[str, object]] = [
        {"params": decayed, "weight_decay": cell.workload.weight_decay},
        {"params": undecayed, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def norm_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Return the weights and biases of all BatchNorm layers."""
    return [
        parameter
        for module in model.modules()
        if isinstance(module, _BatchNorm)
        for parameter in module.parameters(recurse=False)
    ]


def own_optimizer(workload: Workload, model: nn.Module, lr: float) -> Optimizer:
    """Return the user's optimizer of a model.

    Raises:
        HpmlError: the function cannot be imported, or returns no optimizer of the model.
    """
    what = f"workload.optimizer={workload.optimizer}"
    optimizer = user_code.call(
        user_code.load("workload.optimizer", workload.optimizer),
        model,
        lr=lr,
        momentum=workload.momentum,
        weight_decay=workload.weight_decay,
        **workload.args,
    )
    if not isinstance(optimizer, Optimizer):
        raise HpmlError(
            f"{what} returned {type(optimizer).__name__}: return a torch.optim.Optimizer"
        )
    trained = {id(parameter) for parameter in model.parameters()}
    held = [
        parameter for group in optimizer.param_groups for parameter in group["params"]
    ]
    if not any(id(parameter) in trained for parameter in held):
        raise HpmlError(
            f"{what} returned {type(optimizer).__name__} without a parameter of the model: pass it "
            "model.parameters()"
        )
    return optimizer


def state_bytes(optimizer: Optimizer) -> int:
    """Return the bytes of the tensors that an optimizer keeps for its parameters on this rank.

    SGD with momentum keeps one value for each element, AdamW two (and a count for each tensor).
    """
    states = _of_rank(optimizer).state.values()
    total = 0
    for value in (value for state in states for value in state.values()):
        if not isinstance(value, torch.Tensor):
            continue
        # fsdp's shards
        tensor = value.to_local() if hasattr(value, "to_local") else value
        total += tensor.numel() * tensor.element_size()
    return total


def make_schedule(
    cell: Cell, optimizer: Optimizer, iterations: int
) -> LRScheduler | None:
    """Return the schedule to step after every iteration; None keeps the learning rate.

    `iterations` is the number per epoch. A recipe warms up from the workload's
    learning rate, by the same amount in every iteration, if the factor k is more than 1.

    Raises:
        HpmlError: the user's function returns no schedule.
    """
    recipe, factor = cell.recipe, cell.recipe.factor(cell.global_batch)
    if cell.workload.schedule is not None:
        total = cell.epochs * iterations
        return LambdaLR(optimizer, own_schedule(cell.workload, total, cell.epochs))
    warmup = ceil(recipe.warmup_epochs * iterations)
    schedules: list[LRScheduler] = []
    if warmup and factor > 1:
        schedules.append(LinearLR(optimizer, 1 / factor, 1.0, total_iters=warmup))
    if recipe.drop_epochs:
        drops = [epoch * iterations for epoch in recipe.drop_epochs]
        schedules.append(MultiStepLR(optimizer, drops, gamma=0.1))
    return ChainedScheduler(schedules) if schedules else None


def own_schedule(workload: Workload, iterations: int, epochs: int) -> Factor:
    """Return the user's function from an iteration to the factor of the learning rate.

    After the last one, where the profiler trains on, the factor stays.

    Raises:
        HpmlError: `workload.schedule` returns no function, or that no factor.
    """
    assert workload.schedule is not None  # noqa: S101 -- the caller has looked
    what = f"workload.schedule={workload.schedule}"
    build = user_code.load("workload.schedule", workload.schedule)
    factor = user_code.call(
        build, iterations=iterations, epochs=epochs, **workload.args
    )
    if isinstance(factor, LRScheduler) or not callable(factor):
        raise HpmlError(
            f"{what} returned {type(factor).__name__}: return a function from the iteration "
            "(0, 1, …) to a factor of workload.lr"
        )

    def checked(iteration: int) -> float:
        return _checked(what, factor, min(iteration, iterations - 1))

    return checked


def _checked(what: str, factor: Callable[[int], Any], iteration: int) -> float:
    """Return the factor of an iteration; refuse what is not a number of 0 or more."""
    place = f"{what}: its function, for iteration {iteration},"
    try:
        value = float(factor(iteration))
    except (Exception, SystemExit) as error:  # the user's function may raise anything
        raise HpmlError(f"{place} raised {type(error).__name__}: {error}") from error
    if not isfinite(value) or value < 0:
        raise HpmlError(
            f"{place} returned {value:g}: the factor must be 0 or more, and finite"
        )
    return value
