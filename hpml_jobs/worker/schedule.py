"""The learning rate by iteration: of a recipe (docs/keys.md), or of the user's schedule."""

from collections.abc import Callable
from functools import partial
from math import ceil, isfinite
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    LambdaLR,
    LinearLR,
    LRScheduler,
    MultiStepLR,
)

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.recipe import cosine_factor
from hpml_jobs.core.workload import Workload
from hpml_jobs.errors import HpmlError
from hpml_jobs.worker.data import user_code

Factor = Callable[[int], float]
"""An iteration, from 0, to the learning rate's factor."""


def make_schedule(cell: Cell, optimizer: Optimizer, iterations: int) -> LRScheduler | None:
    """Return the schedule to step after every iteration; None keeps the learning rate.

    `iterations` is the number per epoch. A recipe without a cosine warms up from the workload's
    learning rate, by the same amount in every iteration, if the factor k is more than 1.

    Raises:
        HpmlError: the user's function returns no schedule.
    """
    recipe, factor = cell.recipe, cell.recipe.factor(cell.global_batch)
    total = cell.epochs * iterations
    if cell.workload.schedule is not None:
        return LambdaLR(optimizer, own_schedule(cell.workload, total, cell.epochs))
    warmup = ceil(recipe.warmup_epochs * iterations)
    if recipe.final_share is not None:
        share = recipe.final_share
        cosine = partial(cosine_factor, warmup=warmup, total=total, final_share=share)
        return LambdaLR(optimizer, cosine)
    schedules: list[LRScheduler] = []
    if warmup and factor > 1:
        schedules.append(LinearLR(optimizer, 1 / factor, 1.0, total_iters=warmup))
    if recipe.drop_epochs:
        drops = [epoch * iterations for epoch in recipe.drop_epochs]
        schedules.append(MultiStepLR(optimizer, drops, gamma=0.1))
    return ChainedScheduler(schedules) if schedules else None


def own_schedule(workload: Workload, iterations: int, epochs: int) -> Factor:
    """Return the user's function from an iteration to the factor of the learning rate.

    Its values for the first, the middle and the last iteration are tried. After the last one, where
    the profiler trains on, the factor stays.

    Raises:
        HpmlError: `workload.schedule` returns no function, or that no factor.
    """
    assert workload.schedule is not None  # noqa: S101 -- the caller has looked
    what = f"workload.schedule={workload.schedule}"
    build = user_code.load("workload.schedule", workload.schedule)
    factor = user_code.call(build, iterations=iterations, epochs=epochs, **workload.args)
    if isinstance(factor, LRScheduler) or not callable(factor):
        raise HpmlError(
            f"{what} returned {type(factor).__name__}: return a function from the iteration "
            "(0, 1, …) to a factor of workload.lr"
        )

    def checked(iteration: int) -> float:
        return _checked(what, factor, min(iteration, iterations - 1))

    for iteration in (0, iterations // 2, iterations - 1):
        checked(iteration)
    return checked


def _checked(what: str, factor: Callable[[int], Any], iteration: int) -> float:
    """Return the factor of an iteration; refuse what is not a number of 0 or more."""
    place = f"{what}: its function, for iteration {iteration},"
    try:
        number = factor(iteration)
    except (Exception, SystemExit) as error:  # the user's function may raise anything
        raise HpmlError(f"{place} raised {type(error).__name__}: {error}") from error
    try:
        value = float(number)
    except (TypeError, ValueError, RuntimeError) as error:
        raise HpmlError(
            f"{place} returned {type(number).__name__}: return a number, a factor of workload.lr"
        ) from error
    if not isfinite(value) or value < 0:
        raise HpmlError(f"{place} returned {value:g}: the factor must be 0 or more, and finite")
    return value
