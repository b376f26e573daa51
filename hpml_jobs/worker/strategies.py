"""How a cell's processes are tied together, and how gradients meet: a small class per strategy."""

import inspect
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset, DistributedSampler

from hpml_jobs.core.cell import Cell, Device, Strategy
from hpml_jobs.core.measurements import CollectiveKind, Purpose
from hpml_jobs.errors import HpmlError
from hpml_jobs.worker.instruments.collectives import Ledger, by_dtype, noted
from hpml_jobs.worker.instruments.timing import Devices
from hpml_jobs.worker.instruments.wrappers import ObservedDataParallel, ObservedDDP

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
    """One process on one device: the plain loop, the baseline.

    With a `ledger`, collectives are counted and timed in it.
    """

    backend: str | None = None

    def __init__(self, cell: Cell, place: Place, devices: Devices) -> None:
        self.cell = cell
        self.place = place
        self.devices = devices
        self.ledger: Ledger | None = None

    @property
    def overlaps(self) -> bool:
        """Whether collectives start before backward is over."""
        return self.cell.strategy.traffic.overlaps_backward

    @property
    def cards(self) -> list[int]:
        """Numbers of its CUDA devices."""
        return [device.index for device in self.devices if device.type == "cuda"]

    @property
    def loader_batch(self) -> int:
        """Images that this process takes per iteration."""
        return self.cell.batch

    def setup(self) -> None:
        """Tie the processes together."""

    def wrap(self, model: nn.Module, *, observed: bool = False) -> nn.Module:
        """The model as it is trained; `model` itself stays this rank's replica.

        An `observed` one notes the collectives that the wrapper itself makes.
        """
        del observed
        return model

    def sampler(self, images: Dataset[Any]) -> Sampler:
        """Which images this process takes; None: all, shuffled by the loader."""
        del images
        return None

    def exchange(self, replica: nn.Module) -> None:
        """Let gradients meet, after backward, where the wrapper has not done it."""

    def settle(self, replica: nn.Module) -> None:
        """Make this rank's replica what the strategy promises between two iterations."""

    def barrier(self) -> None:
        """Wait for all processes."""

    def gather(self, value: Any) -> list[Any] | None:
        """Every rank's value, by rank, on rank 0; None on the others."""
        return [value]

    def all_agree(self, mine: bool) -> bool:
        """Whether all processes say yes."""
        return mine

    def close(self) -> None:
        """Untie the processes."""


class DP(Single):
    """`DataParallel`: one process scatters every batch over all devices of its node."""

    @property
    def loader_batch(self) -> int:
        """Images that this process takes per iteration, for all of its devices."""
        return self.cell.global_batch

    def wrap(self, model: nn.Module, *, observed: bool = False) -> nn.Module:
        """The model, replicated anew in every forward."""
        numbers = [device.index for device in self.devices]
        if observed:
            return ObservedDataParallel(model, numbers, self)
        return nn.DataParallel(model, device_ids=numbers)


class Grouped(Single):
    """One process per device, tied by a process group; a share of the images for each."""

    def setup(self) -> None:
        """Join the process group that torchrun's environment describes."""
        device = self.devices[0]
        self.backend = "nccl" if device.type == "cuda" else "gloo"
        bound = device if device.type == "cuda" else None
        dist.init_process_group(self.backend, timeout=PATIENCE, device_id=bound)

    def sampler(self, images: Dataset[Any]) -> Sampler:
        """An equal share for every rank, padded by repetition."""
        place = self.place
        return DistributedSampler(images, place.processes, place.rank, seed=self.cell.seed)

    def barrier(self) -> None:
        """Wait for all ranks."""
        dist.barrier()

    def gather(self, value: Any) -> list[Any] | None:
        """Every rank's value, by rank, on rank 0; None on the others."""
        everyone: list[Any] | None = [None] * self.place.processes if self.place.rank == 0 else None
        dist.gather_object(value, everyone)
        return everyone

    def all_agree(self, mine: bool) -> bool:
        """Whether all ranks say yes."""
        answer = torch.tensor(float(mine), device=self.devices[0])
        dist.all_reduce(answer, dist.ReduceOp.MIN)
        return bool(answer.item())

    def close(self) -> None:
        """Leave the process group."""
        dist.destroy_process_group()


_DDP_OPTIONS = inspect.signature(DistributedDataParallel).parameters
_SYNC_BUFFERS = next(
    name for name in ("forward_sync_buffers", "broadcast_buffers") if name in _DDP_OPTIONS
)
"""What this torch calls DDP's broadcast of buffers at every forward."""


class DDP(Grouped):
    """`DistributedDataParallel`: gradients meet in buckets, during backward."""

    def wrap(self, model: nn.Module, *, observed: bool = False) -> nn.Module:
        """The model with its gradient buckets; parameters are rank 0's from now on."""
        numbers = [self.devices[0]] if self.cell.device is Device.CUDA else None
        options: dict[str, Any] = {"device_ids": numbers}
        if not self.cell.replicas_share_buffers:
            options[_SYNC_BUFFERS] = False
        if observed:
            return ObservedDDP(model, self, **options)
        return DistributedDataParallel(model, **options)

    def settle(self, replica: nn.Module) -> None:
        """Send rank 0's buffers to all, as the next wrapped forward would: now they differ."""
        if not self.cell.replicas_share_buffers:
            return
        for buffer in replica.buffers():
            dist.broadcast(buffer, src=0)


class Allreduce(Grouped):
    """By hand: after backward an all-reduce of every gradient, one after another."""

    def wrap(self, model: nn.Module, *, observed: bool = False) -> nn.Module:
        """The model itself; parameters are rank 0's from now on, buffers stay each rank's own."""
        del observed
        for parameter in model.parameters():
            dist.broadcast(parameter.detach(), src=0)
        return model

    def exchange(self, replica: nn.Module) -> None:
        """Sum every gradient over the ranks, then divide."""
        gradients = gradients_of(replica)
        for gradient in gradients:
            with noted(self.ledger, CollectiveKind.ALL_REDUCE, Purpose.GRADIENTS, gradient):
                dist.all_reduce(gradient)
        torch._foreach_div_(gradients, self.place.processes)


class AllreduceFlat(Allreduce):
    """By hand: after backward one all-reduce of all gradients, copied into one message."""

    def exchange(self, replica: nn.Module) -> None:
        """Flatten, sum over the ranks, divide, and copy back."""
        for gradients in by_dtype(gradients_of(replica)):
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            with noted(self.ledger, CollectiveKind.ALL_REDUCE, Purpose.GRADIENTS, flat):
                dist.all_reduce(flat)
            flat /= self.place.processes
            sizes = [gradient.numel() for gradient in gradients]
            parts = flat.split(sizes)  # type: ignore[no-untyped-call]
            means = [
                part.view_as(gradient) for part, gradient in zip(parts, gradients, strict=True)
            ]
            torch._foreach_copy_(gradients, means)


class GatherScatter(Allreduce):
    """By hand: rank 0 gathers every gradient, averages, and scatters the mean back."""

    def exchange(self, replica: nn.Module) -> None:
        """One gather and one scatter for every gradient."""
        is_root, processes = self.place.rank == 0, self.place.processes
        for gradient in gradients_of(replica):
            everyone = [torch.empty_like(gradient) for _ in range(processes)] if is_root else None
            with noted(self.ledger, CollectiveKind.GATHER, Purpose.GRADIENTS, gradient):
                dist.gather(gradient, everyone, dst=0)
            means = [torch.stack(everyone).mean(0)] * processes if everyone else None
            with noted(self.ledger, CollectiveKind.SCATTER, Purpose.GRADIENTS, gradient):
                dist.scatter(gradient, means, src=0)


def gradients_of(replica: nn.Module) -> list[Tensor]:
    """The gradients of a replica; those that backward did not reach are zeros.

    Without them ranks that reach other parameters would wait for each other for ever.
    """
    found = []
    for parameter in replica.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            found.append(parameter.grad)
    return found


STRATEGIES: dict[Strategy, Callable[[Cell, Place, Devices], Single]] = {
    Strategy.SINGLE: Single,
    Strategy.DP: DP,
    Strategy.DDP: DDP,
    Strategy.ALLREDUCE: Allreduce,
    Strategy.ALLREDUCE_FLAT: AllreduceFlat,
    Strategy.GATHER_SCATTER: GatherScatter,
}
