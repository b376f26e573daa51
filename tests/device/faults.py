"""Faults that a change of the worker could make, and that a run on the CPU need not show.

Each function puts one into this process.
"""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from hpml_jobs.worker import epochs
from hpml_jobs.worker.instruments import wrappers


def hits_counted_on_host() -> None:
    """Add up the correct samples on the host."""
    count_correct = epochs.count_correct
    epochs.count_correct = lambda *batch: torch.tensor(count_correct(*batch).item())


def gradients_not_awaited() -> None:
    """Give DDP its buckets back without waiting for the all-reduce."""

    def reduce_and_go_on(_strategy: object, bucket: dist.GradBucket) -> Future[Tensor]:
        tensor = bucket.buffer().div_(dist.get_world_size())
        dist.all_reduce(tensor, async_op=True)
        mean: Future[Tensor] = Future()
        mean.set_result(tensor)
        return mean

    wrappers.average_bucket = reduce_and_go_on
