"""`zero1`: each rank keeps a part of the optimizer's state, and sends what it updates."""

from functools import partial
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.optim import Optimizer

from hpml_jobs.core.measurements import CollectiveKind, Purpose, Volume
from hpml_jobs.worker.ddp import DDP
from hpml_jobs.worker.instruments.wrappers import HasLedger
from hpml_jobs.worker.process_group import MakeOptimizer, ShardFacts


class ZeRO1(DDP):
    """DDP whose optimizer keeps a part of its state on each rank, and sends what it updates."""

    def stamps_of_messages(self, replica: nn.Module) -> int:
        """Return those of DDP, and two for each rank's broadcast."""
        return super().stamps_of_messages(replica) + 2 * self.placement.world_size

    def sharded(self, optimizer: type[Optimizer]) -> MakeOptimizer:
        """Return the optimizer in a ZeroRedundancyOptimizer."""
        return partial(ShardedOptimizer, optimizer_class=optimizer, strategy=self)

    def shard_facts(self, replica: nn.Module, optimizer: Optimizer) -> ShardFacts:
        """Return the elements whose state this rank keeps, and the parameters that a step sends."""
        messages = getattr(optimizer, "messages", [])
        volume = Volume(
            kind=CollectiveKind.BROADCAST,
            purpose=Purpose.PARAMETERS,
            bytes=sum(tensor.numel() * tensor.element_size() for tensor in messages),
        )
        held: int | None = getattr(optimizer, "held_elements", None)
        return ShardFacts(held, (volume,))


class ShardedOptimizer(ZeroRedundancyOptimizer):
    """zero1's optimizer: it updates this rank's parameters and sends them, each rank one broadcast.

    With `parameters_as_bucket_view` the parameters of a rank are one tensor and one message.
    """

    def __init__(
        self,
        groups: Any,
        optimizer_class: type[Optimizer],
        strategy: HasLedger,
        **options: Any,
    ) -> None:
        self._strategy = strategy
        super().__init__(
            groups, optimizer_class, parameters_as_bucket_view=True, **options
        )

    @property
    def messages(self) -> list[Tensor]:
        """The tensors that a step sends: one from each rank."""
        return [bucket for of_device in self._buckets for bucket in of_device]

    @property
    def held_elements(self) -> int:
        """Elements of the trainable parameters whose optimizer state this rank keeps."""
        parameters = [p for group in self.optim.param_groups for p in group["params"]]
        return sum(
            parameter.numel() for parameter in parameters if parameter.requires_grad
        )

    def _sync_params(self) -> None:
        """Send the updated parameters; in an instrumented epoch record each rank's message."""
        ledger = self._strategy.ledger
        if ledger is None:
            super()._sync_params()  # type: ignore[misc]
            return
        sent = []
        for rank in range(dist.get_world_size()):
            bucket = self._buckets[0][rank]
            entry = ledger.begin(CollectiveKind.BROADCAST, Purpose.PARAMETERS, bucket)
            handles = self._broadcast_params_from_rank(rank)  # type: ignore[attr-defined]
            sent.append((entry, handles))
        for entry, handles in sent:
            for handle in handles:
                handle.wait()
            ledger.end(entry)
