"""Faults that a change of the worker could make, and that a run on the CPU need not show.

Each function puts one into this process.
"""

import ctypes
import hashlib
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from hpml_jobs.worker import epochs, loop
from hpml_jobs.worker.data.loaders import Batch, WorkerLoader
from hpml_jobs.worker.instruments import wrappers
from hpml_jobs.worker.instruments.recorder import BareRecorder


def time_read_in_loop() -> None:
    """Read the time of each iteration when it has been queued."""
    end = BareRecorder.end

    def end_and_read(recorder: BareRecorder) -> None:
        end(recorder)
        first, *_, last = recorder.marks[-1]
        recorder.clock.seconds(first, last)

    BareRecorder.end = end_and_read


def hits_counted_on_host() -> None:
    """Add up the correct samples on the host."""
    count_correct = epochs.count_correct
    epochs.count_correct = lambda *batch: torch.tensor(count_correct(*batch).item())


def batch_not_awaited() -> None:
    """Copy each batch in a stream of its own, for which training does not wait."""
    to_device = WorkerLoader.to_device

    def in_side_stream(loader: WorkerLoader, batch: Batch) -> Batch:
        with torch.Stream(loader._device):
            return to_device(loader, batch)

    WorkerLoader.to_device = in_side_stream


def batch_overwritten() -> None:
    """Copy every batch from the same pinned memory, whether the copy before it is done or not."""
    pinned: dict[torch.Size, Tensor] = {}
    to_device = WorkerLoader.to_device

    def from_one_buffer(loader: WorkerLoader, batch: Batch) -> Batch:
        inputs, targets = batch
        buffer = pinned.setdefault(inputs.shape, inputs)
        return to_device(loader, (buffer.copy_(inputs), targets))

    WorkerLoader.to_device = from_one_buffer


def losses_not_awaited() -> None:
    """Read what is copied to the host without waiting for the copy."""
    Tensor.cpu = lambda tensor: tensor.to("cpu", non_blocking=True)


def gradients_not_awaited() -> None:
    """Give DDP its buckets back without waiting for the all-reduce."""

    def reduce_and_go_on(_strategy: object, bucket: dist.GradBucket) -> Future[Tensor]:
        tensor = bucket.buffer().div_(dist.get_world_size())
        dist.all_reduce(tensor, async_op=True)
        mean: Future[Tensor] = Future()
        mean.set_result(tensor)
        return mean

    wrappers.average_bucket = reduce_and_go_on


def parameters_read_in_place() -> None:
    """Hash the parameters where they are, without a copy to the host."""

    def hash_in_place(tensors: Iterable[Tensor]) -> str:
        contents = [
            ctypes.string_at(tensor.data_ptr(), tensor.nbytes) for tensor in tensors
        ]
        return hashlib.sha256(b"".join(contents)).hexdigest()

    loop.fingerprint = hash_in_place
