"""Gradient-exchange strategies: one small class for each value of `strategy=`."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.measurements import CollectiveKind, Purpose
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.worker.ddp import DDP
from hpml_jobs.worker.instruments.collectives import group_by_dtype, recorded
from hpml_jobs.worker.instruments.timing import Devices
from hpml_jobs.worker.instruments.wrappers import InstrumentedDataParallel
from hpml_jobs.worker.path_steps import with_autocast
from hpml_jobs.worker.process_group import (
    ParallelStrategy,
    Placement,
    ProcessGroup,
    SingleProcess,
)


class DP(SingleProcess):
    """`nn.DataParallel`: one process scatters every batch over all GPUs of its node."""

    @property
    def loader_batch(self) -> int:
        """Images that this process loads per iteration, for all of its devices."""
        return self.cell.global_batch

    def wrap(self, model: nn.Module, *, instrumented: bool = False) -> nn.Module:
        """Return the model in a wrapper that replicates it in every forward."""
        device_ids = [device.index for device in self.devices]
        model = with_autocast(model, self.cell.path)
        if instrumented:
            return InstrumentedDataParallel(model, device_ids, self)
        return nn.DataParallel(model, device_ids=device_ids)


class Allreduce(ProcessGroup):
    """By hand: after backward() one all-reduce for each gradient, one after another."""

    def stamps_of_messages(self, replica: nn.Module) -> int:
        """Return two stamps for each gradient."""
        return 2 * len(list(replica.parameters()))

    def reduce_gradients(self, replica: nn.Module) -> None:
        """Sum every gradient over the ranks, then divide by the number of ranks."""
        gradients = gradients_of(replica)
        for gradient in gradients:
            with recorded(
                self.ledger, CollectiveKind.ALL_REDUCE, Purpose.GRADIENTS, gradient
            ):
                dist.all_reduce(gradient)
        torch._foreach_div_(gradients, self.placement.world_size)


class AllreduceFlat(ProcessGroup):
    """By hand: after backward() one all-reduce of all gradients, copied into one tensor."""

    def reduce_gradients(self, replica: nn.Module) -> None:
        """Flatten the gradients, sum over the ranks, divide, and copy back."""
        for gradients in group_by_dtype(gradients_of(replica)):
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            with recorded(
                self.ledger, CollectiveKind.ALL_REDUCE, Purpose.GRADIENTS, flat
            ):
                dist.all_reduce(flat)
            flat /= self.placement.world_size
            sizes = [gradient.numel() for gradient in gradients]
            parts = flat.split(sizes)  # type: ignore[no-untyped-call]
            means = [
                part.view_as(gradient)
                for part, gradient in zip(parts, gradients, strict=True)
            ]
            torch._foreach_copy_(gradients, means)


class GatherScatter(ProcessGroup):
    """By hand: rank 0 gathers every gradient, averages it, and scatters the mean."""

    def stamps_of_messages(self, replica: nn.Module) -> int:
        """Return two stamps for each of two messages of a gradient."""
        return 4 * len(list(replica.parameters()))

    def reduce_gradients(self, replica: nn.Module) -> None:
        """Gather and scatter each gradient."""
        rank, _, world_size = self.placement
        for gradient in gradients_of(replica):
            received = (
                [torch.empty_like(gradient) for _ in range(world_size)]
                if rank == 0
                else None
            )
            with recorded(
                self.ledger, CollectiveKind.GATHER, Purpose.GRADIENTS, gradient
            ):
                dist.gather(gradient, received, dst=0)
            means = [torch.stack(received).mean(0)] * world_size if received else None
            with recorded(
                self.ledger, CollectiveKind.SCATTER, Purpose.GRADIENTS, gradient
            ):
                dist.scatter(gradient, means, src=0)


def gradients_of(replica: nn.Module) -> list[Tensor]:
    """Return the gradients of all trainable parameters; zeros where backward() set none.

    If ranks left out different parameters, they would wait for each other forever. Those of a
    channels_last layer are flat views in the order of their memory, because collectives send
    contiguous tensors.
    """
    gradients = []
    for parameter in replica.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradients.append(_contiguous(parameter.grad))
    return gradients


def _contiguous(gradient: Tensor) -> Tensor:
    if gradient.is_contiguous() or not gradient.is_contiguous(
        memory_format=torch.channels_last
    ):
        return gradient
    return gradient.as_strided((gradient.numel(),), (1,), gradient.storage_offset())


def _fsdp(cell: Cell, placement: Placement, devices: Devices) -> ParallelStrategy:
    from hpml_jobs.worker.sharding.fsdp import FSDP  # noqa: PLC0415

    return FSDP(cell, placement, devices)


def _zero1(cell: Cell, placement: Placement, devices: Devices) -> ParallelStrategy:
    from hpml_jobs.worker.sharding.zero1 import ZeRO1  # noqa: PLC0415

    return ZeRO1(cell, placement, devices)


STRATEGIES: dict[Strategy, Callable[[Cell, Placement, Devices], ParallelStrategy]] = {
    Strategy.SINGLE: SingleProcess,
    Strategy.DP: DP,
    Strategy.DDP: DDP,
    Strategy.ALLREDUCE: Allreduce,
    Strategy.ALLREDUCE_FLAT: AllreduceFlat,
    Strategy.GATHER_SCATTER: GatherScatter,
    Strategy.ZERO1: _zero1,
    Strategy.FSDP: _fsdp,
}
