"""One small batch of the user's code, tried: items, collation, forward, loss, backward, step.

What a job cannot train is refused with a sentence about the user's function. What this machine
cannot compute, though a job may, is only reported as not tried.
"""

import re
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from operator import getitem
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import default_collate

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.workload import Loss, Workload
from hpml_jobs.worker import models
from hpml_jobs.worker.data import datasets
from hpml_jobs.worker.data.user_code import place_of
from hpml_jobs.worker.failure import is_oom, reason_of
from hpml_jobs.worker.optimizer import Factor, own_optimizer, own_schedule

ITEMS = 16
"""Items that are collated, spread over the data set, so that unequal shapes show."""

TRIED_ITERATIONS, TRIED_EPOCHS = 1_000, 3
"""What the user's schedule is made for at submission; a job makes it for the cell's iterations."""

_NEEDS_GPU = re.compile(
    r"cuda|nvidia|triton|gpu|not implemented for|same device|_cpu|active drivers",
    re.IGNORECASE,
)
"""Words of errors that a model may raise on a CPU only."""

_CLASS_NUMBER = re.compile(r"Target (-?\d+) is out of bounds")

T = TypeVar("T")


class UntriedError(Exception):
    """This machine cannot compute the batch; a job may."""


class Trial:
    """The trial of one workload on the device `on`, for cells that compute on `device`."""

    def __init__(self, workload: Workload, device: Device, on: str = "cpu") -> None:
        self.workload = workload
        self.on = on
        self.lacks_gpu = device is Device.CUDA and on == "cpu"

    def run(self, data: datasets.Data, model: nn.Module, size: int) -> None:
        """Train on one batch of `size` items, and evaluate one if there is a test set.

        Raises:
            HpmlError: the workload cannot be trained; the message names function and shapes.
            UntriedError: this machine cannot compute it.
        """
        what = f"workload.model={self.workload.model}"
        model = self.attempt(f"{what}: to({self.on})", lambda: model.to(self.on))
        inputs, targets = self._batch(data.train, "dataset(True)", size)
        value = self._loss(self._outputs(model.train(), inputs), targets)
        if not value.requires_grad:
            raise HpmlError(
                f"workload.loss={self.workload.loss}: the loss does not depend on a trainable "
                "parameter: remove detach(), item() and no_grad() between parameters and loss"
            )
        self.attempt(f"{what}: the backward pass", value.backward)
        if ":" in self.workload.optimizer:
            optimizer = self.optimizer(model)
            step = f"workload.optimizer={self.workload.optimizer}: step()"
            self.attempt(step, lambda: self._step(optimizer))
        if data.test is not None:
            inputs, targets = self._batch(data.test, "dataset(False)", size)
            with torch.no_grad():
                self._loss(self._outputs(model.eval(), inputs), targets)

    def _step(self, optimizer: Optimizer) -> None:
        """Make one step of an optimizer and of its schedule; schedules wrap `step`."""
        has_own = self.workload.schedule is not None
        schedule = LambdaLR(optimizer, self._schedule() if has_own else lambda _: 1.0)
        optimizer.step()
        schedule.step()

    def _schedule(self) -> Factor:
        return own_schedule(self.workload, TRIED_ITERATIONS, TRIED_EPOCHS)

    def optimizer(self, model: nn.Module) -> Optimizer:
        """Return the user's own optimizer of a model.

        Raises:
            HpmlError: the function raises or returns something else.
            UntriedError: this machine cannot make it.
        """
        what = f"workload.optimizer={self.workload.optimizer}"
        return self.attempt(
            what, lambda: own_optimizer(self.workload, model, self.workload.lr)
        )

    def try_schedule(self) -> None:
        """Make the user's own schedule, of so many iterations, if there is one.

        Raises:
            HpmlError: the function raises, or returns no factors of the learning rate.
        """
        workload = self.workload
        if workload.schedule is not None:
            what = f"workload.schedule={workload.schedule}"
            self.attempt(what, self._schedule)

    def attempt(self, what: str, function: Callable[[], T]) -> T:
        """Call a function of the user.

        Raises:
            HpmlError: it raised; the message begins with `what` and ends with the place.
            UntriedError: it needs more memory than there is, or a GPU.
        """
        try:
            return function()
        except HpmlError:
            raise
        except (Exception, SystemExit) as error:
            if is_oom(error):
                raise UntriedError(
                    f"{what} needs more memory than this machine has"
                ) from error
            if self.lacks_gpu and _NEEDS_GPU.search(str(error)):
                raise UntriedError(
                    f"{what} needs a GPU ({reason_of(error)})"
                ) from error
            is_exit = isinstance(error, SystemExit)
            happened = "called sys.exit" if is_exit else f"raised {reason_of(error)}"
            place = place_of(traceback.extract_tb(error.__traceback__))
            raise HpmlError(f"{what} {happened}{place}") from error

    def _batch(
        self, images: datasets.Images, call: str, size: int
    ) -> tuple[Tensor, Tensor]:
        """Return the first `size` of some items, collated; all of them must collate."""
        what = f"workload.data={self.workload.data}"
        last = datasets.length(images) - 1
        numbers = sorted(
            {round(number * last / (ITEMS - 1)) for number in range(ITEMS)}
        )
        items = [
            self.attempt(
                f"{what}: item {number} of {call}", partial(getitem, images, number)
            )
            for number in numbers
        ]
        for number, item in zip(numbers, items, strict=True):
            if not isinstance(item, tuple | list) or len(item) != 2:
                raise HpmlError(
                    f"{what}: item {number} of {call} is {_described(item)}: return a pair "
                    "(input, target) of tensors or numbers"
                )
        columns = []
        for part, name in enumerate(("input", "target")):
            values = [item[part] for item in items]
            columns.append(
                _collated(f"{what}: the {name}s of {call}", numbers, values)[:size]
            )
        return columns[0], columns[1]

    def _outputs(self, model: nn.Module, inputs: Tensor) -> Tensor:
        what = f"workload.model={self.workload.model}"
        call = f"{what}: forward() with inputs {_described(inputs)}"
        outputs = self.attempt(call, lambda: model(inputs.to(self.on)))
        if not isinstance(outputs, Tensor):
            raise HpmlError(
                f"{what}: forward() returned {_described(outputs)}: return one tensor, and compute "
                "the loss in workload.loss=pkg.mod:loss"
            )
        return outputs

    def _loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        what, loss = (
            f"workload.loss={self.workload.loss}",
            models.build_loss(self.workload),
        )
        targets = targets.to(self.on)
        shapes = f"outputs {_described(outputs)} and targets {_described(targets)}"
        try:
            value = self.attempt(
                f"{what} with {shapes}", lambda: loss(outputs, targets)
            )
        except HpmlError as error:
            if self.workload.loss != Loss.CROSS_ENTROPY:
                raise
            raise HpmlError(_cross_entropy_fault(what, shapes, str(error))) from error
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise HpmlError(
                f"{what} returned {_described(value)} for {shapes}: return the mean over the "
                "batch, a scalar tensor (reduction='mean')"
            )
        return value


def _collated(what: str, numbers: Sequence[int], values: Sequence[Any]) -> Tensor:
    """Return inputs or targets as one tensor; they must have one shape."""
    shapes = [_described(value) for value in values]
    other = next(
        (index for index, shape in enumerate(shapes) if shape != shapes[0]), None
    )
    if other is not None:
        raise HpmlError(
            f"{what} differ: item {numbers[0]} has {shapes[0]}, item {numbers[other]} has "
            f"{shapes[other]}: pad, crop or convert them to one shape and type"
        )
    try:
        collated = default_collate(list(values))
    except (TypeError, RuntimeError) as error:
        raise HpmlError(
            f"{what}: each is {shapes[0]}, which PyTorch cannot collate: return tensors"
        ) from error
    if not isinstance(collated, Tensor):
        raise HpmlError(
            f"{what}: each is {shapes[0]}: return one tensor (or number) each"
        )
    return collated


def _cross_entropy_fault(what: str, shapes: str, reason: str) -> str:
    number = _CLASS_NUMBER.search(reason)
    if number:
        return (
            f"{what}: a target is class {number[1]}, with {shapes}: set workload.classes=, or "
            "number the classes from 0"
        )
    return (
        f"{what} does not fit {shapes}: it takes (n, classes) and class numbers (n); for other "
        "shapes write a loss, workload.loss=pkg.mod:loss"
    )


def _described(value: Any) -> str:
    """Return a value's type and shape for people.

    >>> [_described(value) for value in (torch.zeros(2, 3), {"ids": 1}, (1, "a"), 3.0)]
    ['(2, 3) float32', 'a dict with ids', 'a tuple of 2 (int, str)', 'a float']
    """
    if isinstance(value, Tensor):
        return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{tuple(value.shape)} {value.dtype}"
    if isinstance(value, dict):
        return f"a {type(value).__name__} with {', '.join(map(str, list(value)[:8]))}"
    if isinstance(value, tuple | list):
        kinds = []
        for part in value[:4]:
            is_tensor = isinstance(part, Tensor)
            kinds.append(_described(part) if is_tensor else type(part).__name__)
        return f"a {type(value).__name__} of {len(value)} ({', '.join(kinds)})"
    return f"a {type(value).__name__}"
