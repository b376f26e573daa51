"""The two bases of strategies: a single process, and a process group."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import Dataset, DistributedSampler

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.measurements import Volume
from hpml_jobs.core.processes import KEPT_ALIVE
from hpml_jobs.worker.instruments.collectives import Ledger
from hpml_jobs.worker.instruments.timing import Clock, Devices, clock_for

COLLECTIVE_TIMEOUT = timedelta(minutes=10)
"""How long a collective waits, at most, for a rank that is late or gone."""

COLLECTIVE_SHARE = 1 / 3
"""The share of the cell's time limit that it waits at most: a hang is reported before the limit."""

SETTLING_PASSES = 2

STAMPS_OF_FEW_MESSAGES = 24
"""Stamps of an iteration's messages where they are not one by one those of the gradients."""


def collective_timeout(minutes: int | None) -> timedelta:
    """Return how long a collective waits in a cell with a time limit in minutes (None: no limit).

    >>> [collective_timeout(minutes).seconds for minutes in (3, 240, None)]
    [60, 600, 600]
    """
    if minutes is None:
        return COLLECTIVE_TIMEOUT
    return min(COLLECTIVE_TIMEOUT, COLLECTIVE_SHARE * timedelta(minutes=minutes))


Sampler = DistributedSampler[Any] | None


class Placement(NamedTuple):
    """This process among the processes of its cell."""

    rank: int
    local_rank: int
    world_size: int


def read_placement(cell: Cell) -> Placement:
    """Return this process's placement from RANK, LOCAL_RANK and WORLD_SIZE (default: 0, 0, 1).

    Raises:
        HpmlError: the number of processes is not the number that the cell needs.
    """
    rank, local_rank, world_size = (
        int(os.environ.get(name, default))
        for name, default in (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1"))
    )
    if world_size != cell.processes:
        raise HpmlError(
            f"strategy={cell.strategy.value} with gpus={cell.gpus} needs {cell.processes} "
            f"process(es), but {world_size} were started: start the cell with hpml-jobs run or "
            f"torchrun --nproc-per-node={cell.gpus_per_node}"
        )
    return Placement(rank, local_rank, world_size)


class ShardFacts(NamedTuple):
    """What a rank of a sharded model keeps, and what it must send per iteration.

    `held_elements` are elements of parameters; None where every rank keeps everything. `groups` is
    the number of groups that fsdp gathers.
    """

    held_elements: int | None = None
    expected: tuple[Volume, ...] = ()
    groups: int | None = None


MakeOptimizer = Callable[..., Optimizer]
"""An optimizer's class: parameter groups, `lr=` and its other options to an optimizer."""


Move = Callable[[nn.Module], nn.Module]
"""Takes a model to the device, in the layout of its training path."""


_NO_CONTEXT = nullcontext()


class ParallelStrategy:
    """How the processes of a cell train one model together. Every rank calls every method.

    What is not overridden is that of one process on one device. `backend` is the process group's
    (nccl or gloo), None without a group. While `ledger` is set, the strategy records its
    collectives in it.
    """

    backend: str | None = None

    def __init__(self, cell: Cell, placement: Placement, devices: Devices) -> None:
        self.cell = cell
        self.placement = placement
        self.devices = devices
        self.ledger: Ledger | None = None
        self._clock = clock_for(self.devices)

    def clock(self, stamps: int) -> Clock:
        """Return the clock of all epochs of this process, ready for a number of stamps."""
        self._clock.prepare(stamps)
        return self._clock

    @property
    def overlaps(self) -> bool:
        """Whether collectives start before backward() returns."""
        return self.cell.strategy.traffic.overlaps_backward

    @property
    def settling_passes(self) -> int:
        """Forward and backward passes after which DDP has replaced its initial buckets."""
        return SETTLING_PASSES

    @property
    def gpus(self) -> Devices:
        """This process's devices that are GPUs; empty on the CPU."""
        return tuple(device for device in self.devices if device.type != "cpu")

    @property
    def loader_batch(self) -> int:
        """Images that this process loads per iteration."""
        return self.cell.batch

    def setup(self, timeout: timedelta) -> None:
        """Join the process group, whose collectives wait up to `timeout` for another rank."""

    def stamps_of_messages(self, replica: nn.Module) -> int:
        """Return how many stamps the messages of an iteration need; some more do no harm.

        By default those of a few messages: of buckets, of buffers, of dp's four calls.
        """
        del replica
        return STAMPS_OF_FEW_MESSAGES

    def place(self, model: nn.Module, move: Move) -> nn.Module:
        """Return a new model where `wrap` takes it from; `move` takes it to the first device."""
        return move(model)

    def local_copy(self, model: nn.Module) -> nn.Module:
        """Return a copy of the replica, on the device, as it computes without any exchange."""
        return model

    def sharded(self, optimizer: type[Optimizer]) -> MakeOptimizer:
        """Return what makes an optimizer of this class, perhaps with a part of its state."""
        return optimizer

    @contextmanager
    def whole(self, replica: nn.Module) -> Iterator[None]:
        """Hold all parameters on this rank in the block, whose forward passes send nothing."""
        del replica
        yield

    def full_parameters(self, replica: nn.Module) -> Iterable[Tensor]:
        """Yield every parameter whole, gathered from all ranks if it is sharded."""
        return replica.parameters()

    def state(self, replica: nn.Module) -> dict[str, Tensor]:
        """Return the whole state of the replica, gathered from all ranks if it is sharded."""
        return replica.state_dict()

    def shard_facts(self, replica: nn.Module, optimizer: Optimizer) -> ShardFacts:
        """Return what this rank keeps and must send; nothing where every rank keeps everything."""
        del replica, optimizer
        return ShardFacts()

    def wrap(self, model: nn.Module, *, instrumented: bool = False) -> nn.Module:
        """Return the model to train; `model` itself stays this rank's replica.

        With `instrumented` the wrapper records its own collectives in the ledger.
        """
        del instrumented
        return model

    def sampler(self, images: Dataset[Any]) -> Sampler:
        """Return the sampler of this rank's shard; None if the process takes all images."""
        del images
        return None

    def exchange(
        self, model: nn.Module, *, in_backward: bool
    ) -> AbstractContextManager[Any]:
        """Return the context of a forward; without `in_backward` its backward exchanges nothing."""
        del model, in_backward
        return _NO_CONTEXT

    def reduce_gradients(self, replica: nn.Module) -> None:
        """Average the gradients over all ranks after backward(), unless the wrapper has done it."""

    def sync_buffers(self, replica: nn.Module) -> None:
        """Give the replica's buffers the values that the next wrapped forward would give them."""

    def barrier(self) -> None:
        """Wait for all ranks."""

    def gather(self, value: Any) -> list[Any] | None:
        """Return every rank's value in rank order on rank 0, and None on the other ranks."""
        return [value]

    def all_agree(self, agrees: bool) -> bool:
        """Return whether the argument is true on all ranks."""
        return agrees

    def close(self) -> None:
        """Leave the process group."""


class SingleProcess(ParallelStrategy):
    """One process on one device, without communication: the baseline."""


class ProcessGroup(ParallelStrategy):
    """Base of the strategies with one process per device, a process group and sharded images.

    A strategy that exchanges gradients by hand overrides `reduce_gradients`, and
    `stamps_of_messages` if it sends more than a few.
    """

    def setup(self, timeout: timedelta) -> None:
        """Join the process group that torchrun's environment describes."""
        device = self.devices[0]
        self.backend = dist.get_default_backend_for_device(device)
        device_id = device if self.gpus else None
        dist.init_process_group(self.backend, timeout=timeout, device_id=device_id)
        KEPT_ALIVE.append(dist.group.WORLD)

    def wrap(self, model: nn.Module, *, instrumented: bool = False) -> nn.Module:
        """Return the model itself with rank 0's parameters; every rank keeps its own buffers."""
        del instrumented
        for parameter in model.parameters():
            dist.broadcast(parameter.detach(), src=0)
        return model

    def sampler(self, images: Dataset[Any]) -> Sampler:
        """Return the sampler of this rank's shard; shards are padded to the same length."""
        rank, _, world_size = self.placement
        return DistributedSampler(images, world_size, rank, seed=self.cell.seed)

    def barrier(self) -> None:
        """Wait for all ranks."""
        dist.barrier()

    def gather(self, value: Any) -> list[Any] | None:
        """Return every rank's value in rank order on rank 0, and None on the other ranks."""
        rank, _, world_size = self.placement
        values: list[Any] | None = [None] * world_size if rank == 0 else None
        dist.gather_object(value, values)
        return values

    def all_agree(self, agrees: bool) -> bool:
        """Return whether the argument is true on all ranks."""
        least = torch.tensor(float(agrees), device=self.devices[0])
        dist.all_reduce(least, dist.ReduceOp.MIN)
        return bool(least.item())

    def close(self) -> None:
        """Leave the process group."""
        dist.destroy_process_group()
