"""A GPU of scripted times: cells with device=cuda run on CPU tensors, stamped with its events.

The host queues work and goes on; the device does it in order. Work takes the milliseconds that the
script says, so every stamp of an epoch is known beforehand.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple

import msgspec
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook

from hpml_jobs.worker import models
from hpml_jobs.worker.data.device_loading import DeviceLoading
from hpml_jobs.worker.data.loaders import BatchLoader
from hpml_jobs.worker.ddp import DDP
from hpml_jobs.worker.instruments import timing
from hpml_jobs.worker.instruments.timing import DeviceClock
from hpml_jobs.worker.process_group import SingleProcess
from hpml_jobs.worker.results import RankResult
from hpml_jobs.worker.training import Training

GPU = (torch.device("cuda", 0),)


class Script(NamedTuple):
    """Milliseconds of one iteration: of the host to load and to launch, of the device to work."""

    load: float = 2.0
    launch: float = 1.0  # of each of the four steps below
    copy: float = 1.0
    forward: float = 7.0
    backward: float = 11.0
    optimizer: float = 3.0
    all_reduce: float = 5.0  # of a bucket, in NCCL's stream
    buffers: float = 2.0  # of a broadcast of all buffers

    @property
    def device(self) -> float:
        """Milliseconds of the device in an iteration without communication."""
        return self.copy + self.forward + self.backward + self.optimizer


class ScriptedGpu:
    """The times of a host and of its device's queue, in milliseconds."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.host_ms = 0.0
        self.queued_until_ms = 0.0
        self.nccl_until_ms = 0.0
        self.synchronizations = 0
        self.events = 0

    def load(self) -> None:
        """Let the host load a batch; the device goes on."""
        self.host_ms += self.script.load

    def launch(self, work_ms: float) -> None:
        """Let the host queue work, which begins when the work before it is done."""
        self.queued_until_ms = max(self.queued_until_ms, self.host_ms) + work_ms
        self.host_ms += self.script.launch

    def all_reduce(self) -> None:
        """Queue an all-reduce in NCCL's stream, behind the work so far; other work may go on."""
        begin_ms = max(self.nccl_until_ms, self.queued_until_ms, self.host_ms)
        self.nccl_until_ms = begin_ms + self.script.all_reduce
        self.host_ms += self.script.launch

    def wait_for_nccl(self) -> None:
        """Let the work that comes wait for NCCL's stream."""
        self.queued_until_ms = max(self.queued_until_ms, self.nccl_until_ms)

    @contextmanager
    def behind_nccl(self) -> Iterator[None]:
        """Record events behind NCCL's stream, as in the callback of its future."""
        queued_until_ms = self.queued_until_ms
        self.queued_until_ms = max(queued_until_ms, self.nccl_until_ms)
        yield
        self.queued_until_ms = queued_until_ms

    def synchronize(self, _device: object = None) -> None:
        """Let the host wait for all streams of the device."""
        self.wait_for_nccl()
        self.host_ms = max(self.host_ms, self.queued_until_ms)
        self.synchronizations += 1

    def perf_counter_ns(self) -> int:
        """Return the host's time."""
        return round(1e6 * self.host_ms)


class ScriptedEvent:
    """An event that refuses to be read until the host has waited for the device."""

    def __init__(self, gpu: ScriptedGpu) -> None:
        self._gpu = gpu
        self._at_ms: float | None = None
        self._readable_after = 0
        gpu.events += 1

    def record(self) -> None:
        """Queue the event behind the work so far."""
        self._at_ms = max(self._gpu.queued_until_ms, self._gpu.host_ms)
        self._readable_after = self._gpu.synchronizations

    def elapsed_time(self, other: "ScriptedEvent") -> float:
        """Return the milliseconds from this event to another one."""
        for event in (self, other):
            if (
                event._at_ms is None
                or event._readable_after >= self._gpu.synchronizations
            ):
                raise RuntimeError("an event was read before a synchronize")
        return other._at_ms - self._at_ms


class ScriptedSingle(SingleProcess):
    """The plain loop on CPU tensors, with the clock of a GPU."""

    def __init__(self, *of_rank: Any) -> None:
        super().__init__(*of_rank)
        self._clock = DeviceClock(GPU)  # its events are scripted


class ScriptedFuture(torch.futures.Future[Any]):
    """NCCL's future: complete for the host at once, with callbacks in a stream behind NCCL's."""

    gpu: ScriptedGpu

    def then(self, callback: Any) -> Any:
        """Run the callback."""
        with self.gpu.behind_nccl():
            return super().then(callback)


class ScriptedWork(NamedTuple):
    """A collective that NCCL will do."""

    tensor: Tensor
    gpu: ScriptedGpu

    def get_future(self) -> ScriptedFuture:
        """Return its future."""
        future = ScriptedFuture()
        future.gpu = self.gpu
        future.set_result([self.tensor])
        return future


class ScriptedDDP(DDP):
    """Rank 0 of two under ddp, on CPU tensors; the other rank does the same."""

    gpu: ScriptedGpu

    def __init__(self, *of_rank: Any) -> None:
        super().__init__(*of_rank)
        self._clock = DeviceClock(GPU)  # its events are scripted

    def setup(self, timeout: timedelta) -> None:
        """Make a group of this process alone."""
        self.backend, self._timeout = "gloo", timeout
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

    def reduce_gradients(self, replica: nn.Module) -> None:
        """Wait for NCCL, as DDP does at the end of backward()."""
        self.gpu.wait_for_nccl()

    def gather(self, value: RankResult) -> list[Any]:
        """Return this rank's result, and the same as the other rank's."""
        other = msgspec.structs.replace(value.rank, rank=1, local_rank=1, pid=1)
        return [value, value._replace(rank=other)]


class ScriptedImages(NamedTuple):
    """The images of a batch, whose copy takes time of the device."""

    images: Tensor
    gpu: ScriptedGpu

    def to(self, *_: Any, **__: Any) -> Tensor:
        """Queue the copy."""
        self.gpu.launch(self.gpu.script.copy)
        return self.images


@contextmanager
def scripted_gpu(
    monkeypatch: pytest.MonkeyPatch, script: Script
) -> Iterator[ScriptedGpu]:
    """Replace CUDA's events and synchronization; the parts of an iteration take scripted times."""
    gpu = ScriptedGpu(script)
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: ScriptedEvent(gpu))
    monkeypatch.setattr(torch.cuda, "synchronize", gpu.synchronize)
    monkeypatch.setattr(timing, "perf_counter_ns", gpu.perf_counter_ns)
    monkeypatch.setattr(ScriptedDDP, "gpu", gpu, raising=False)
    _script_collectives(monkeypatch, gpu)
    build, batches = models.build, Training.batches

    def scripted_build(*arguments: Any) -> nn.Module:
        model = build(*arguments)
        model.register_forward_hook(_launch_passes(gpu))
        return model

    def scripted_batches(training: Training, number: int) -> Iterable[Any]:
        for batch in batches(training, number):
            gpu.load()
            # its place only; to_device makes it
            if isinstance(training.loading, DeviceLoading):
                launch_copies_of(type(training.loader))
                yield batch
            else:
                yield ScriptedImages(batch[0], gpu), batch[1]

    @cache
    def launch_copies_of(loader: type[BatchLoader]) -> None:
        to_device = loader.to_device

        def scripted_to_device(self: BatchLoader, batch: Any) -> Any:
            gpu.launch(script.copy)
            return to_device(self, batch)

        monkeypatch.setattr(loader, "to_device", scripted_to_device)

    monkeypatch.setattr(models, "build", scripted_build)
    monkeypatch.setattr(Training, "batches", scripted_batches)
    handle = register_optimizer_step_post_hook(lambda *_: gpu.launch(script.optimizer))
    benchmark = torch.backends.cudnn.benchmark
    try:
        yield gpu
    finally:
        handle.remove()
        torch.backends.cudnn.benchmark = benchmark


def _script_collectives(monkeypatch: pytest.MonkeyPatch, gpu: ScriptedGpu) -> None:
    """Give the collectives of an instrumented DDP, and the broadcasts of any, their times."""
    all_reduce = dist.all_reduce

    def scripted_all_reduce(
        tensor: Tensor, *arguments: Any, group: Any = None, async_op: bool = False
    ) -> Any:
        if not async_op:
            return all_reduce(tensor, *arguments)
        gpu.all_reduce()
        return ScriptedWork(tensor, gpu)

    def scripted_broadcast(*_: Any) -> None:
        gpu.launch(gpu.script.buffers)

    monkeypatch.setattr(dist, "all_reduce", scripted_all_reduce)
    monkeypatch.setattr(
        DistributedDataParallel, "_distributed_broadcast_coalesced", scripted_broadcast
    )


def _launch_passes(gpu: ScriptedGpu) -> Any:
    """Return a forward hook that queues the forward pass, and the backward pass when it begins."""

    def launch(_module: nn.Module, _inputs: Any, outputs: Tensor) -> None:
        gpu.launch(gpu.script.forward)
        if outputs.requires_grad:
            outputs.register_hook(lambda _: gpu.launch(gpu.script.backward))

    return launch
