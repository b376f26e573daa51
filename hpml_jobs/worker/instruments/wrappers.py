"""DDP and DataParallel, instrumented: the collectives that they make themselves are recorded."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves

from hpml_jobs.core.measurements import CollectiveKind, Purpose
from hpml_jobs.worker.instruments.collectives import Ledger
from hpml_jobs.worker.instruments.timing import Stamp


class HasLedger(Protocol):
    """The owner of the current epoch's ledger; None outside an instrumented epoch."""

    ledger: Ledger | None


class InstrumentedDDP(DistributedDataParallel):
    """DDP that records its gradient buckets and its broadcasts of buffers."""

    def __init__(self, model: nn.Module, strategy: HasLedger, **options: Any) -> None:
        super().__init__(model, **options)
        self._strategy = strategy
        # Not a method of the wrapper: torch's reducer would keep the wrapper, and the wrapper the
        # reducer, in a cycle through C++ that Python does not see.
        self.register_comm_hook(strategy, average_bucket)

    def _distributed_broadcast_coalesced(
        self, tensors: list[Tensor], buffer_size: int, authoritative_rank: int = 0
    ) -> None:
        """Broadcast the buffers in one call, as DDP does: it has a message of each dtype in flight.

        The interval of the call has the copies into and out of the messages in it.
        """
        ledger = self._strategy.ledger
        start = ledger.clock.stamp() if ledger else None
        super()._distributed_broadcast_coalesced(  # type: ignore[no-untyped-call]
            tensors, buffer_size, authoritative_rank
        )
        if ledger:
            ledger.record_call(
                CollectiveKind.BROADCAST, Purpose.BUFFERS, tensors, start
            )


def average_bucket(
    strategy: HasLedger, bucket: GradBucket
) -> torch.futures.Future[Tensor]:
    """Average a bucket as DDP does, and record it."""
    return record_all_reduce(
        bucket.buffer().div_(dist.get_world_size()), strategy.ledger
    )


def record_all_reduce(
    tensor: Tensor, ledger: Ledger | None, group: dist.ProcessGroup | None = None
) -> torch.futures.Future[Tensor]:
    """Sum a tensor over the ranks, and time it from the call until the sum is complete."""
    collective = (
        ledger.begin(CollectiveKind.ALL_REDUCE, Purpose.GRADIENTS, tensor)
        if ledger
        else None
    )
    work = dist.all_reduce(tensor, group=group, async_op=True)

    def complete(future: torch.futures.Future[list[Tensor]]) -> Tensor:
        if ledger and collective:
            ledger.end(collective)
        future.value()  # raises what the all-reduce raised
        return tensor

    total: torch.futures.Future[Tensor] = work.get_future().then(complete)
    return total


class InstrumentedDataParallel(nn.DataParallel[nn.Module]):
    """DataParallel that records its scatter, broadcast, gather and reduce.

    Bytes are those that go to or come from another device. There is no ring: everything passes
    through device 0, in every iteration. Before gather and reduce device 0 waits until the other
    replicas have computed: that wait is recorded apart from the communication.
    """

    def __init__(
        self, model: nn.Module, device_ids: Sequence[int], strategy: HasLedger
    ) -> None:
        super().__init__(model, device_ids=list(device_ids))
        self._strategy = strategy

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Any) -> Any:
        """Send a part of the batch to every other device."""
        start = self._stamp()
        parts = super().scatter(inputs, kwargs, device_ids)
        self._record(
            CollectiveKind.SCATTER, Purpose.INPUTS, flatten_tensors(parts[0][1:]), start
        )
        return parts

    def replicate(self, module: nn.Module, device_ids: Any) -> Any:
        """Send parameters and buffers to every other device, in one call of torch."""
        start = self._stamp()
        replicas = super().replicate(module, device_ids)
        copies = len(replicas) - 1
        parameters = [*module.parameters()] * copies
        self._record(CollectiveKind.BROADCAST, Purpose.PARAMETERS, parameters, start)
        buffers = [*module.buffers()] * copies
        self._record(CollectiveKind.BROADCAST, Purpose.BUFFERS, buffers, start)
        if copies and self._strategy.ledger:
            self._time_reduction(module, replicas[1], copies)
        return replicas

    def gather(self, outputs: Any, output_device: Any) -> Any:
        """Collect every other device's outputs on device 0."""
        start = self._wait_for_replicas()
        gathered = super().gather(outputs, output_device)
        self._record(
            CollectiveKind.GATHER, Purpose.OUTPUTS, flatten_tensors(outputs[1:]), start
        )
        return gathered

    def _time_reduction(
        self, module: nn.Module, replica: nn.Module, copies: int
    ) -> None:
        """Time the node of the backward graph that adds the replicas' gradients on device 0."""
        node = _broadcast_node(replica)
        if node is None:
            return
        gradients = [p for p in module.parameters() if p.requires_grad] * copies
        starts: list[Stamp] = []
        node.register_prehook(lambda _: starts.append(self._wait_for_replicas()))
        node.register_hook(
            lambda *_: self._record(
                CollectiveKind.REDUCE, Purpose.GRADIENTS, gradients, starts.pop()
            )
        )

    def _stamp(self) -> Stamp:
        ledger = self._strategy.ledger
        return ledger.clock.stamp() if ledger else None

    def _wait_for_replicas(self) -> Stamp:
        """Let device 0 wait for the others, as the next call does; return the end of the wait."""
        ledger = self._strategy.ledger
        return ledger.wait_for_replicas() if ledger else None

    def _record(
        self,
        kind: CollectiveKind,
        purpose: Purpose,
        tensors: Sequence[Tensor],
        start: Stamp,
    ) -> None:
        ledger = self._strategy.ledger
        if ledger:
            ledger.record_call(kind, purpose, tensors, start)


def flatten_tensors(values: Any) -> list[Tensor]:
    """Return the tensors inside nested lists, tuples and dicts."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def _broadcast_node(replica: nn.Module) -> torch.autograd.graph.Node | None:
    """Return the node that made the replica's parameters; its backward is the reduction."""
    for module in replica.modules():
        for tensor in getattr(module, "_former_parameters", {}).values():
            if tensor is not None and tensor.grad_fn is not None:
                node: torch.autograd.graph.Node = tensor.grad_fn
                return node
    return None
