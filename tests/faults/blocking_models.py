"""A person's own model that waits, in its first iteration, until the test lets it go on."""

import os
import sys
import time
from pathlib import Path

from torch import Tensor, nn
from user_code import build, dataset

__all__ = ["Held", "Picky", "RaisesFirst", "build", "dataset"]


class Held(nn.Module):
    """Every rank lays `held-ATTEMPT-RANK` into its cell's folder and waits until it is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.body = build()
        self.asked = False

    def forward(self, images: Tensor) -> Tensor:
        if not self.asked:
            self.asked = True
            self.ask()
        return self.body(images)

    def ask(self) -> None:
        folder, attempt = sys.argv[1:3]  # the worker's own words
        mark = Path(folder, f"held-{attempt}-{os.environ.get('RANK', '0')}")
        mark.touch()
        while mark.exists():
            time.sleep(0.1)


class RaisesFirst(Held):
    """Rank 1 raises; the others meet the broken exchange a moment later."""

    def ask(self) -> None:
        if os.environ.get("RANK") == "1":
            raise ValueError("this model cannot count")


class Picky(nn.Module):
    """Works with 16 images, and with no other number."""

    def __init__(self) -> None:
        super().__init__()
        self.body = build()

    def forward(self, images: Tensor) -> Tensor:
        if self.training and len(images) != 16:
            raise ValueError(f"{len(images)} images are not 16")
        return self.body(images)
