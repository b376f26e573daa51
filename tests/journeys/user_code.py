"""A user's model and data; some models fail on purpose."""

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


class FaultyModel(nn.Module):
    """The same model; rank 1 calls `act` in its first forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.body = build()

    def forward(self, images: Tensor) -> Tensor:
        if os.environ.get("RANK") == "1":
            self.act()
        return self.body(images)

    def act(self) -> None:
        raise NotImplementedError


class RaisingModel(FaultyModel):
    def act(self) -> None:
        raise ValueError("this model cannot count")


class KilledModel(FaultyModel):
    def act(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class SleepingModel(FaultyModel):
    def act(self) -> None:
        time.sleep(3600)


class SleepsOnFirstRun(FaultyModel):
    """Hangs in the first attempt, runs in the second."""

    def act(self) -> None:
        marker = Path("slept")
        if not marker.exists():
            marker.touch()
            time.sleep(3600)


class MemoryExhausting(nn.Module):
    """The same model; over 64 images take 32 MB each, long enough for SLURM to notice."""

    def __init__(self) -> None:
        super().__init__()
        self.body = build()

    def forward(self, images: Tensor) -> Tensor:
        if len(images) <= 64:
            return self.body(images)
        held = torch.ones(len(images), 8_000_000)
        time.sleep(60)
        return self.body(images) + 0 * held[:, :1]


class OutOfMemoryModel(nn.Module):
    """The same model; more than 64 images need more memory than any machine has."""

    def __init__(self) -> None:
        super().__init__()
        self.body = build()

    def forward(self, images: Tensor) -> Tensor:
        held = torch.empty(2**50 if len(images) > 64 else 1)
        return self.body(images) + 0 * len(held)
