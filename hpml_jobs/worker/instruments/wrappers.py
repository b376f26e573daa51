"""torch's two wrappers with eyes on the collectives that they make themselves."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves

from hpml_jobs.core.measurements import CollectiveKind, Purpose
from hpml_jobs.worker.instruments.collectives import Ledger, by_dtype, noted
from hpml_jobs.worker.instruments.timing import Stamp


class HasLedger(Protocol):
    """Where the ledger of the epoch is found, if it has one."""

    ledger: Ledger | None


class ObservedDDP(DistributedDataParallel):
    """DDP that notes its gradient buckets and its broadcasts of buffers."""

    def __init__(self, model: nn.Module, strategy: HasLedger, **options: Any) -> None:
        super().__init__(model, **options)
        self._strategy = strategy
        self.register_comm_hook(None, self._reduce)

    def _reduce(self, _: None, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        """What DDP does with a bucket, timed from the call until the mean is complete."""
        tensor, ledger = bucket.buffer(), self._strategy.ledger
        tensor.div_(dist.get_world_size())
        entry = (
            ledger.begin(CollectiveKind.ALL_REDUCE, Purpose.GRADIENTS, tensor) if ledger else None
        )
        work = dist.all_reduce(tensor, async_op=True)

        def complete(future: torch.futures.Future[list[Tensor]]) -> Tensor:
            if ledger and entry:
                ledger.end(entry)
            return future.value()[0]

        done: torch.futures.Future[Tensor] = work.get_future().then(complete)
        return done

    def _distributed_broadcast_coalesced(
        self, tensors: list[Tensor], buffer_size: int, authoritative_rank: int = 0
    ) -> None:
        """DDP's broadcast of its buffers: one message per dtype, so each gets its own call."""
        for group in by_dtype(tensors):
            with noted(self._strategy.ledger, CollectiveKind.BROADCAST, Purpose.BUFFERS, *group):
                super()._distributed_broadcast_coalesced(  # type: ignore[no-untyped-call]
                    group, buffer_size, authoritative_rank
                )


class ObservedDataParallel(nn.DataParallel[nn.Module]):
    """DataParallel that notes its four exchanges; bytes are those that change the device.

    It is no ring all-reduce: everything passes through device 0, in every iteration.
    """

    def __init__(self, model: nn.Module, numbers: Sequence[int], strategy: HasLedger) -> None:
        super().__init__(model, device_ids=list(numbers))
        self._strategy = strategy

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Any) -> Any:
        """A part of the batch to every other device."""
        start = self._stamp()
        parts = super().scatter(inputs, kwargs, device_ids)
        self._note(CollectiveKind.SCATTER, Purpose.INPUTS, tensors_of(parts[0][1:]), start)
        return parts

    def replicate(self, module: nn.Module, device_ids: Any) -> Any:
        """Parameters and buffers to every other device, in one call of torch."""
        start = self._stamp()
        replicas = super().replicate(module, device_ids)
        others = len(replicas) - 1
        self._note(
            CollectiveKind.BROADCAST, Purpose.PARAMETERS, [*module.parameters()] * others, start
        )
        self._note(CollectiveKind.BROADCAST, Purpose.BUFFERS, [*module.buffers()] * others, start)
        if others and self._strategy.ledger:
            self._watch_reduction(module, replicas[1], others)
        return replicas

    def gather(self, outputs: Any, output_device: Any) -> Any:
        """Every other device's outputs to device 0."""
        start = self._stamp()
        whole = super().gather(outputs, output_device)
        self._note(CollectiveKind.GATHER, Purpose.OUTPUTS, tensors_of(outputs[1:]), start)
        return whole

    def _watch_reduction(self, module: nn.Module, replica: nn.Module, others: int) -> None:
        """Time the node of the backward graph that adds the replicas' gradients on device 0."""
        node = _broadcast_node(replica)
        if node is None:
            return
        gradients = [p for p in module.parameters() if p.requires_grad] * others
        begun: list[Stamp] = []
        node.register_prehook(lambda _: begun.append(self._stamp()))
        node.register_hook(
            lambda *_: self._note(CollectiveKind.REDUCE, Purpose.GRADIENTS, gradients, begun.pop())
        )

    def _stamp(self) -> Stamp:
        ledger = self._strategy.ledger
        return ledger.clock.stamp() if ledger else None

    def _note(
        self, kind: CollectiveKind, purpose: Purpose, tensors: Sequence[Tensor], start: Stamp
    ) -> None:
        """What went in one call: a message per dtype, each with the whole call as its interval."""
        ledger = self._strategy.ledger
        if ledger is None:
            return
        end = ledger.clock.stamp()
        for group in by_dtype(tensors):
            entry = ledger.begin(kind, purpose, *group)
            entry.start, entry.end = start, end


def tensors_of(values: Any) -> list[Tensor]:
    """The tensors in nested values."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def _broadcast_node(replica: nn.Module) -> torch.autograd.graph.Node | None:
    """The node that made a replica's parameters; its backward is the reduction."""
    for module in replica.modules():
        for tensor in getattr(module, "_former_parameters", {}).values():
            if tensor is not None and tensor.grad_fn is not None:
                node: torch.autograd.graph.Node = tensor.grad_fn
                return node
    return None
