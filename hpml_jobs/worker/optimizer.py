"""The optimizer and the learning-rate schedule of a recipe (docs/large_batch.md)."""

from collections.abc import Callable
from math import ceil

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import ChainedScheduler, LinearLR, LRScheduler, MultiStepLR

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.training_path import Precision


def make_optimizer(cell: Cell, model: nn.Module, make: Callable[..., Optimizer] = SGD) -> Optimizer:
    """Return SGD with the workload's learning rate times the recipe's factor k.

    `make` is SGD, or the strategy's optimizer around it.

    torch keeps u = m u + g and steps by lr x u: the learning rate is not part of the momentum
    buffer, so changing it needs no momentum correction (Goyal et al. 2017, remark 2).
    """
    workload, recipe = cell.workload, cell.recipe
    undecayed = [] if recipe.decay_norm else norm_parameters(model)
    undecayed_ids = {id(parameter) for parameter in undecayed}
    decayed = [parameter for parameter in model.parameters() if id(parameter) not in undecayed_ids]
    groups = [
        {"params": decayed, "weight_decay": workload.weight_decay},
        {"params": undecayed, "weight_decay": 0.0},
    ]
    rate = workload.lr * recipe.factor(cell.global_batch)
    # The fused step skips an overflow on the device; the others would wait for its answer.
    fused = True if cell.path.precision is Precision.FP16 else None
    used = [group for group in groups if group["params"]]
    return make(used, lr=rate, momentum=workload.momentum, fused=fused)


def norm_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Return the weights and biases of all BatchNorm layers."""
    return [
        parameter
        for module in model.modules()
        if isinstance(module, _BatchNorm)
        for parameter in module.parameters(recurse=False)
    ]


def make_schedule(cell: Cell, optimizer: Optimizer, iterations: int) -> LRScheduler | None:
    """Return the schedule to step after every iteration; None keeps the learning rate.

    `iterations` is the number per epoch. Warm-up starts at the workload's learning rate and adds
    the same amount in every iteration; there is none if the factor k is 1 or less.
    """
    recipe, factor = cell.recipe, cell.recipe.factor(cell.global_batch)
    schedules: list[LRScheduler] = []
    warmup_iterations = ceil(recipe.warmup_epochs * iterations)
    if warmup_iterations and factor > 1:
        schedules.append(LinearLR(optimizer, 1 / factor, 1.0, total_iters=warmup_iterations))
    if recipe.drop_epochs:
        drops = [epoch * iterations for epoch in recipe.drop_epochs]
        schedules.append(MultiStepLR(optimizer, drops, gamma=0.1))
    return ChainedScheduler(schedules) if schedules else None
