"""A user's model and data that sleep where `INJECTED` says, and keep the measured sleeps.

`INJECTED` is a JSON object: milliseconds of `item`, `forward`, `loss`, `backward`, `optimizer` and
`all_reduce`, on all ranks or, below the number of a rank, on this one; `computing` are milliseconds
of CPU time in the forward pass, `width` that of the model, `first_bucket_bytes` the size of DDP's
first bucket. `backward` is between the gradients of
the second layer and those of the first. Each training iteration adds a line with the
seconds slept in it to `truth/<cell>.rank<R>.jsonl` beside this file.
"""

import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import Dataset

IMAGES = 240
SLEEPING_MESSAGES = (0, 3, 6)
"""The messages of an iteration that sleep: one of one, or three of the eight of a tensor each."""

_INJECTED = json.loads(os.environ.get("INJECTED", "{}"))
_RANK = int(os.environ.get("RANK", "0"))
_INJECTED |= _INJECTED.pop(str(_RANK), {})
WIDTH = _INJECTED.get("width", 16)


class Iteration:
    """The sleeps of the current iteration in seconds; `messages` is None outside of one.

    Loading comes before the forward pass. A forward pass without a step, as when buckets are
    rebuilt, is forgotten.
    """

    def __init__(self) -> None:
        self.items: Counter[str] = Counter()
        self.slept: Counter[str] = Counter()
        self.messages: int | None = None

    def sleep(self, where: str) -> None:
        """Sleep as long as is injected here, and keep the measured time."""
        begun = time.perf_counter()
        if where in _INJECTED:
            time.sleep(_INJECTED[where] / 1000)
        (self.items if where == "item" else self.slept)[where] += (
            time.perf_counter() - begun
        )

    def begin(self) -> None:
        self.slept.clear()
        self.messages = 0

    def end(self) -> None:
        """Keep the sleeps of this iteration."""
        self.messages = None
        if len(sys.argv) > 1 and "worker" in sys.argv[0]:
            truth = Path(__file__).parent / "truth"
            truth.mkdir(exist_ok=True)
            path = truth / f"{Path(sys.argv[1]).name}.rank{_RANK}.jsonl"
            with path.open("a") as file:
                file.write(json.dumps(self.items + self.slept) + "\n")
        self.items.clear()


ITERATION = Iteration()


class SleepInBackward(torch.autograd.Function):
    """The identity; its backward pass sleeps."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        ITERATION.sleep("backward")
        return gradient


class SleepingModel(nn.Module):
    """Four layers, so eight tensors of parameters; the buffers of a norm, which ddp broadcasts."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH, affine=False)
        hidden = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.rest = nn.Sequential(*hidden, nn.Linear(WIDTH, 10))

    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            ITERATION.begin()
            ITERATION.sleep("forward")
            ends = time.thread_time() + _INJECTED.get("computing", 0) / 1000
            while time.thread_time() < ends:
                pass
        hidden: Tensor = SleepInBackward.apply(self.norm(self.first(images)))
        outputs: Tensor = self.rest(hidden)
        return outputs


class SleepingData(Dataset[tuple[Tensor, int]]):
    """Random inputs; an item for training sleeps."""

    def __init__(self, *, train: bool) -> None:
        self.train = train
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(IMAGES if train else 16, 16, generator=generator)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if self.train:
            ITERATION.sleep("item")
        return self.inputs[index], index % 10


def build() -> nn.Module:
    return SleepingModel()


def dataset(train: bool) -> SleepingData:
    return SleepingData(train=train)


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    if torch.is_grad_enabled():
        ITERATION.sleep("loss")
    return nn.functional.cross_entropy(outputs, targets)


_all_reduce, _step = dist.all_reduce, torch.optim.SGD.step


def slow_all_reduce(*arguments: Any, **options: Any) -> Any:
    """Sleep before some of the messages of a training iteration."""
    number = ITERATION.messages
    if number is not None:
        ITERATION.messages = number + 1
        if number in SLEEPING_MESSAGES:
            ITERATION.sleep("all_reduce")
    return _all_reduce(*arguments, **options)


def slow_step(optimizer: torch.optim.SGD, closure: Any = None) -> Any:
    """Sleep before the update, and end the iteration."""
    ITERATION.sleep("optimizer")
    result = _step(optimizer, closure)
    ITERATION.end()
    return result


dist.all_reduce = slow_all_reduce
if "first_bucket_bytes" in _INJECTED:
    dist._DEFAULT_FIRST_BUCKET_BYTES = _INJECTED["first_bucket_bytes"]
torch.optim.SGD.step = slow_step  # type: ignore[method-assign]
