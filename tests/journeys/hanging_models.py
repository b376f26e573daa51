"""User models and data sets that hang on rank 1, each in another way."""

import os
import time

import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import TensorDataset
from user_code import build, dataset

__all__ = ["LonelyModel", "LoopingModel", "build", "dataset", "stuck_dataset"]


def is_rank_1() -> bool:
    return os.environ.get("RANK") == "1"


class LoopingModel(nn.Module):
    """Rank 1 never leaves its forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.body = build()

    def forward(self, images: Tensor) -> Tensor:
        while is_rank_1():
            time.sleep(0.1)  # loops
        return self.body(images)


class LonelyModel(LoopingModel):
    """Rank 1 waits for the other rank in a group of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.group = dist.new_group() if dist.is_initialized() else None

    def forward(self, images: Tensor) -> Tensor:
        if is_rank_1():
            dist.barrier(self.group)  # waits
        return self.body(images)


class StuckDataset(TensorDataset):
    """On rank 1 the first image never comes."""

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        while is_rank_1():
            time.sleep(0.1)  # loads
        return super().__getitem__(index)


def stuck_dataset(train: bool) -> TensorDataset:
    return StuckDataset(*dataset(train).tensors)
