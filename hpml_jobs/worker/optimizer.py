"""The optimizer, and its learning rate over time, as the recipe says (docs/large_batch.md)."""

from math import ceil

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import SGD
from torch.optim.lr_scheduler import ChainedScheduler, LinearLR, LRScheduler, MultiStepLR

from hpml_jobs.core.cell import Cell


def make_optimizer(cell: Cell, model: nn.Module) -> SGD:
    """SGD with the workload's rate times the recipe's factor k.

    torch keeps the sum of gradients u = m u + g and steps by lr x u: the rate is outside of the
    momentum, so a rate that changes needs no momentum correction (Goyal et al., remark 2).
    """
    workload, recipe = cell.workload, cell.recipe
    spared = [] if recipe.decay_norm else norm_parameters(model)
    ids = {id(parameter) for parameter in spared}
    decayed = [parameter for parameter in model.parameters() if id(parameter) not in ids]
    groups = [
        {"params": decayed, "weight_decay": workload.weight_decay},
        {"params": spared, "weight_decay": 0.0},
    ]
    rate = workload.lr * recipe.factor(cell.global_batch)
    return SGD([group for group in groups if group["params"]], rate, workload.momentum)


def norm_parameters(model: nn.Module) -> list[nn.Parameter]:
    """BatchNorm's own weights and biases."""
    return [
        parameter
        for module in model.modules()
        if isinstance(module, _BatchNorm)
        for parameter in module.parameters(recurse=False)
    ]


def make_schedule(cell: Cell, optimizer: SGD, iterations: int) -> LRScheduler | None:
    """What changes the rate after every iteration, of which an epoch has so many; None: nothing.

    Warm-up begins with the workload's own rate and adds the same amount in every iteration; where
    the factor k is 1 or less there is nothing to warm up to.
    """
    recipe, factor = cell.recipe, cell.recipe.factor(cell.global_batch)
    schedules: list[LRScheduler] = []
    warming = ceil(recipe.warmup_epochs * iterations)
    if warming and factor > 1:
        schedules.append(LinearLR(optimizer, 1 / factor, 1.0, total_iters=warming))
    if recipe.drop_epochs:
        drops = [epoch * iterations for epoch in recipe.drop_epochs]
        schedules.append(MultiStepLR(optimizer, drops, gamma=0.1))
    return ChainedScheduler(schedules) if schedules else None
