"""`strategy=zero1`: the optimizer whose state is shared over the ranks."""

from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.optim import Optimizer

from hpml_jobs.core.measurements import CollectiveKind, Purpose
from hpml_jobs.worker.instruments.wrappers import HasLedger


class ShardedOptimizer(ZeroRedundancyOptimizer):
    """An optimizer that updates this rank's parameters and sends them: each rank one broadcast.

    With `parameters_as_bucket_view` the parameters of a rank are one tensor and one message.
    """

    def __init__(
        self, groups: Any, optimizer_class: type[Optimizer], strategy: HasLedger, **options: Any
    ) -> None:
        self._strategy = strategy
        super().__init__(groups, optimizer_class, parameters_as_bucket_view=True, **options)

    @property
    def messages(self) -> list[Tensor]:
        """The tensors that a step sends: one from each rank."""
        return [bucket for of_device in self._buckets for bucket in of_device]

    @property
    def held_elements(self) -> int:
        """Elements of the trainable parameters whose optimizer state this rank keeps."""
        parameters = [p for group in self.optim.param_groups for p in group["params"]]
        return sum(parameter.numel() for parameter in parameters if parameter.requires_grad)

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
