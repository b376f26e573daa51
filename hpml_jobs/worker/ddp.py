"""`ddp`: torch's `DistributedDataParallel`, which zero1 extends."""

import inspect
from contextlib import AbstractContextManager
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hpml_jobs.worker.instruments.wrappers import InstrumentedDDP
from hpml_jobs.worker.process_group import ProcessGroup

_DDP_OPTIONS = inspect.signature(DistributedDataParallel).parameters
_SYNC_BUFFERS = next(
    name
    for name in ("forward_sync_buffers", "broadcast_buffers")
    if name in _DDP_OPTIONS
)
"""Name of DDP's option for broadcasting buffers in every forward; it depends on torch's version."""


NEVER = 10**9
"""Iterations between two in which DDP times itself; on CUDA it then waits for the device."""

CUDA_SETTLING_PASSES = 11
"""DDP times each of its first 10 iterations (c10d, `should_collect_runtime_stats`)."""


class DDP(ProcessGroup):
    """`DistributedDataParallel`: all-reduces gradients in buckets during backward()."""

    def wrap(self, model: nn.Module, *, instrumented: bool = False) -> nn.Module:
        """Return the model in DDP, which broadcasts rank 0's parameters."""
        options: dict[str, Any] = {"device_ids": self.gpus or None}
        if not self.cell.replicas_share_buffers:
            options[_SYNC_BUFFERS] = False
        wrapper = (
            InstrumentedDDP(model, self, **options)
            if instrumented
            else DistributedDataParallel(model, **options)
        )
        wrapper._set_ddp_runtime_logging_sample_rate(NEVER)  # type: ignore[no-untyped-call]
        return wrapper

    def exchange(
        self, model: nn.Module, *, in_backward: bool
    ) -> AbstractContextManager[Any]:
        """Return the context of a forward; without `in_backward` its gradients stay on this rank.

        A replica that trains alone has no wrapper, and nothing to keep.
        """
        if in_backward or not isinstance(model, DistributedDataParallel):
            return super().exchange(model, in_backward=in_backward)
        context: AbstractContextManager[Any] = model.no_sync()
        return context

    @property
    def settling_passes(self) -> int:
        """Passes after which DDP has its final buckets and, on CUDA, no longer times itself."""
        return CUDA_SETTLING_PASSES if self.gpus else super().settling_passes

    def sync_buffers(self, replica: nn.Module) -> None:
        """Broadcast rank 0's buffers; between two iterations they differ between ranks."""
        if not self.cell.replicas_share_buffers:
            return
        for buffer in replica.buffers():
            dist.broadcast(buffer, src=0)
