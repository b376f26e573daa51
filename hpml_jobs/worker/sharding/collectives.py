"""FSDP2, instrumented: its collectives, and the waiting for them."""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_collectives import (
    DefaultAllGather,
    DefaultReduceScatter,
)
from torch.utils._pytree import tree_leaves

from hpml_jobs.core.measurements import CollectiveKind, Purpose
from hpml_jobs.worker.instruments.timing import Stamp
from hpml_jobs.worker.instruments.wrappers import HasLedger


class RecordedAllGather(DefaultAllGather):
    """torch's all-gather of a group, recorded in the stream that it runs in."""

    def __init__(self, strategy: HasLedger) -> None:
        self._strategy = strategy

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Gather a group's shards into `output_tensor`, of all ranks."""
        ledger = self._strategy.ledger
        if ledger is None:
            return super().__call__(output_tensor, input_tensor, group, async_op)
        entry = ledger.begin(
            CollectiveKind.ALL_GATHER, Purpose.PARAMETERS, output_tensor
        )
        work = super().__call__(output_tensor, input_tensor, group, async_op)
        ledger.end(entry)
        return work


class RecordedReduceScatter(DefaultReduceScatter):
    """torch's reduce-scatter of a group, recorded in the stream that it runs in.

    FSDP2 allows one at a time: before the next one the computing stream waits for it, from
    `waits_from` until the next input is allocated.
    """

    def __init__(self, strategy: HasLedger) -> None:
        self._strategy = strategy
        self.waits_from: Stamp = None

    def allocate(
        self, size: Any, *, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """Return a buffer; the first one of a call is made in the computing stream."""
        ledger = self._strategy.ledger
        if ledger and self.waits_from is not None:
            ledger.wait(self.waits_from, ledger.clock.stamp())
            self.waits_from = None
        return super().allocate(size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Sum `input_tensor` over the ranks; `output_tensor` is this rank's part of it."""
        ledger = self._strategy.ledger
        if ledger is None:
            return super().__call__(output_tensor, input_tensor, group, op, async_op)
        entry = ledger.begin(
            CollectiveKind.REDUCE_SCATTER, Purpose.GRADIENTS, input_tensor
        )
        work = super().__call__(output_tensor, input_tensor, group, op, async_op)
        ledger.end(entry)
        if input_tensor.device.type == "cpu":  # gloo returns when it is complete
            ledger.wait(entry.start, entry.end)
        return work


def instrument(groups: Iterable[Sequence[nn.Module]], strategy: HasLedger) -> None:
    """Record the collectives of every group of modules of a sharded model, and the waits for them.

    The computing stream waits in FSDP2's own hooks: before a group's forward and before its
    backward for the all-gather, after its backward for the reduce-scatter of the group before it.
    Our hooks around them stamp this stream, so that hidden and exposed communication are told
    apart.
    """
    for modules in groups:
        reduce_scatter = RecordedReduceScatter(strategy)
        # whose messages are those of all its modules
        group = cast("FSDPModule", modules[0])
        group.set_custom_all_gather(RecordedAllGather(strategy))
        group.set_custom_reduce_scatter(reduce_scatter)
        for module in modules:
            waits = _ModuleWaits(strategy, reduce_scatter)
            # FSDP2's hooks are between these: prepended ones run before them, the others after
            module.register_forward_pre_hook(waits.before_forward, prepend=True)
            module.register_forward_pre_hook(waits.gathered_for_forward)
            module.register_forward_hook(waits.forward_done, prepend=True)
            module.register_forward_hook(waits.hooked_for_backward)


class _ModuleWaits:
    """Stamps of the computing stream around the hooks of one module of a group."""

    def __init__(
        self, strategy: HasLedger, reduce_scatter: RecordedReduceScatter
    ) -> None:
        self._strategy = strategy
        self._reduce_scatter = reduce_scatter
        self._start: Stamp = None

    def before_forward(self, *_: Any) -> None:
        """Stamp the start of waiting for the all-gather in forward."""
        self._begin()

    def gathered_for_forward(self, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        """Stamp its end; ask to be called when the gradients of the inputs are ready."""
        self._end()
        for tensor in _with_gradient(inputs) if self._strategy.ledger else ():
            tensor.register_hook(self._gradients_ready)  # type: ignore[no-untyped-call]

    def forward_done(self, _: nn.Module, __: Any, outputs: Any) -> None:
        """Ask to be called before FSDP2's hook on the gradients of the outputs."""
        for tensor in _with_gradient(outputs) if self._strategy.ledger else ():
            tensor.register_hook(lambda _: self._begin())  # type: ignore[no-untyped-call]

    def hooked_for_backward(self, _: nn.Module, __: Any, outputs: Any) -> None:
        """Ask to be called after it."""
        for tensor in _with_gradient(outputs) if self._strategy.ledger else ():
            tensor.register_hook(lambda _: self._end())  # type: ignore[no-untyped-call]

    def _begin(self) -> None:
        ledger = self._strategy.ledger
        self._start = ledger.clock.stamp() if ledger else None

    def _end(self) -> None:
        ledger = self._strategy.ledger
        if ledger and self._start is not None:
            ledger.wait(self._start, ledger.clock.stamp())
        self._start = None

    def _gradients_ready(self, _: Tensor) -> None:
        ledger = self._strategy.ledger
        self._reduce_scatter.waits_from = ledger.clock.stamp() if ledger else None


def _with_gradient(values: Any) -> list[Tensor]:
    """Return the tensors in nested values whose gradients are computed."""
    return [
        leaf
        for leaf in tree_leaves(values)
        if isinstance(leaf, Tensor) and leaf.requires_grad
    ]
