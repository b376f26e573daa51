"""A person's own model and data, some of it faulty on purpose."""

import os
import signal
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset


def build() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 10))


def dataset(train: bool) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(256 if train else 64, 3, 8, 8, generator=generator)
    return TensorDataset(images, torch.arange(len(images)) % 10)


class Faulty(nn.Module):
    """The same model; its `act` happens in the first forward of rank 1."""

    def __init__(self) -> None:
        super().__init__()
        self.body = build()

    def forward(self, images: Tensor) -> Tensor:
        if os.environ.get("RANK") == "1":
            self.act()
        return self.body(images)

    def act(self) -> None:
        raise NotImplementedError


class Raises(Faulty):
    def act(self) -> None:
        raise ValueError("this model cannot count")


class Killed(Faulty):
    def act(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Sleeps(Faulty):
    def act(self) -> None:
        time.sleep(3600)


class SleepsOnce(Faulty):
    """Hangs in the first attempt, works in the next one."""

    def act(self) -> None:
        marker = Path("slept")
        if not marker.exists():
            marker.touch()
            time.sleep(3600)


class Hungry(nn.Module):
    """The same model; every image of a batch takes 32 MB more, for long enough to be seen."""

    def __init__(self) -> None:
        super().__init__()
        self.body = build()

    def forward(self, images: Tensor) -> Tensor:
        held = torch.ones(len(images), 8_000_000)
        if len(images) > 64:
            time.sleep(60)
        return self.body(images) + 0 * held[:, :1]


class TooMuch(nn.Module):
    """The same model; more than 64 images are more than any machine has memory for."""

    def __init__(self) -> None:
        super().__init__()
        self.body = build()

    def forward(self, images: Tensor) -> Tensor:
        held = torch.empty(2**50 if len(images) > 64 else 1)
        return self.body(images) + 0 * len(held)
