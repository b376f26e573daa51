"""How a cell's processes are tied together: one small class per strategy."""

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset, DistributedSampler

from hpml_jobs.cell import Cell, Device, Strategy
from hpml_jobs.errors import HpmlError
from hpml_jobs.worker.timing import Devices

PATIENCE = timedelta(minutes=10)
"""How long a collective waits for a rank that is late, or gone on a node we cannot see."""

Sampler = DistributedSampler[Any] | None


class Place(NamedTuple):
    """Which of the cell's processes this is, as torchrun tells it."""

    rank: int
    local_rank: int
    processes: int


def this_place(cell: Cell) -> Place:
    """This process's place, checked against the number of processes that the cell wants."""
    rank, local_rank, processes = (
        int(os.environ.get(name, default))
        for name, default in (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1"))
    )
    if processes != cell.processes:
        raise HpmlError(
            f"strategy={cell.strategy.value} with gpus={cell.gpus} is {cell.processes} "
            f"process(es), but {processes} were started"
        )
    return Place(rank, local_rank, processes)


class Single:
    """One process on one device: the plain loop, the baseline."""

    backend: str | None = None

    def __init__(self, cell: Cell, place: Place, devices: Devices) -> None:
        self.cell = cell
        self.place = place
        self.devices = devices

    @property
    def loader_batch(self) -> int:
        """Images that this process takes per iteration."""
        return self.cell.batch

    def setup(self) -> None:
        """Tie the processes together."""

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model as it is trained; `model` itself stays this rank's replica."""
        return model

    def sampler(self, images: Dataset[Any]) -> Sampler:
        """Which images this process takes; None: all, shuffled by the loader."""
        del images
        return None

    def settle(self, replica: nn.Module) -> None:
        """Make this rank's replica what the strategy promises between two iterations."""

    def barrier(self) -> None:
        """Wait for all processes."""

    def gather(self, value: Any) -> list[Any] | None:
        """Every rank's value, by rank, on rank 0; None on the others."""
        return [value]

    def close(self) -> None:
        """Untie the processes."""


class DP(Single):
    """`DataParallel`: one process scatters every batch over all devices of its node."""

    @property
    def loader_batch(self) -> int:
        """Images that this process takes per iteration, for all of its devices."""
        return self.cell.global_batch

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model, replicated anew in every forward."""
        return nn.DataParallel(model, device_ids=[device.index for device in self.devices])


class DDP(Single):
    """`DistributedDataParallel`: a process per device, gradients meet during backward."""

    def setup(self) -> None:
        """Join the process group that torchrun's environment describes."""
        device = self.devices[0]
        self.backend = "nccl" if device.type == "cuda" else "gloo"
        bound = device if device.type == "cuda" else None
        dist.init_process_group(self.backend, timeout=PATIENCE, device_id=bound)

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model with its gradient buckets; parameters are rank 0's from now on."""
        on_cuda = self.cell.device is Device.CUDA
        return DistributedDataParallel(model, device_ids=[self.devices[0]] if on_cuda else None)

    def sampler(self, images: Dataset[Any]) -> Sampler:
        """An equal share for every rank, padded by repetition."""
        place = self.place
        return DistributedSampler(images, place.processes, place.rank, seed=self.cell.seed)

    def settle(self, replica: nn.Module) -> None:
        """Send rank 0's buffers to all, as the next wrapped forward would: now they differ."""
        for buffer in replica.buffers():
            dist.broadcast(buffer, src=0)

    def barrier(self) -> None:
        """Wait for all ranks."""
        dist.barrier()

    def gather(self, value: Any) -> list[Any] | None:
        """Every rank's value, by rank, on rank 0; None on the others."""
        everyone: list[Any] | None = [None] * self.place.processes if self.place.rank == 0 else None
        dist.gather_object(value, everyone)
        return everyone

    def close(self) -> None:
        """Leave the process group."""
        dist.destroy_process_group()


STRATEGIES: dict[Strategy, Callable[[Cell, Place, Devices], Single]] = {
    Strategy.SINGLE: Single,
    Strategy.DP: DP,
    Strategy.DDP: DDP,
}
