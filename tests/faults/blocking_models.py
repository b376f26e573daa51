"""User models that block in their first iteration until the test releases them."""

import os
import sys
import time
from pathlib import Path

from torch import Tensor, nn
from user_code import build, dataset

__all__ = [
    "Blocking",
    "BlockingWhenTimed",
    "FailsUnlessBatch16",
    "RaisingRank1",
    "build",
    "dataset",
]


class Blocking(nn.Module):
    """Every rank writes `blocked-ATTEMPT-RANK` into its cell's folder and waits for its removal."""

    has_blocked = False

    def __init__(self) -> None:
        super().__init__()
        self.body = build()

    def forward(self, images: Tensor) -> Tensor:
        if not Blocking.has_blocked:  # once: a second model counts the operations
            Blocking.has_blocked = True
            self.block()
        return self.body(images)

    def block(self) -> None:
        folder, attempt = sys.argv[1:3]  # the worker's arguments
        mark = Path(folder, f"blocked-{attempt}-{os.environ.get('RANK', '0')}")
        mark.touch()
        while mark.exists():
            time.sleep(0.1)


class BlockingWhenTimed(nn.Module):
    """Every rank blocks like Blocking, in the third iteration of its timed epoch.

    An epoch has 8 iterations: two ranks with batch 16 on the 256 images of `dataset`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.body = build()
        self.iterations = 0

    def forward(self, images: Tensor) -> Tensor:
        self.iterations += self.training
        if self.training and self.iterations == 8 + 3:
            Blocking.block(self)
        return self.body(images)


class RaisingRank1(Blocking):
    """Rank 1 raises; the other ranks then fail in the gradient exchange."""

    def block(self) -> None:
        if os.environ.get("RANK") == "1":
            raise ValueError("this model cannot count")


class FailsUnlessBatch16(nn.Module):
    """Fails in training with any batch but 16."""

    def __init__(self) -> None:
        super().__init__()
        self.body = build()

    def forward(self, images: Tensor) -> Tensor:
        if self.training and len(images) != 16:
            raise ValueError(f"{len(images)} images are not 16")
        return self.body(images)
