"""A GPU of scripted times: cells with device=cuda run on CPU tensors, stamped with its events.

The host queues work and goes on; the device does it in order. Work takes the milliseconds that the
script says, so every stamp of an epoch is known beforehand.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from hpml_jobs.worker import models
from hpml_jobs.worker.instruments import timing
from hpml_jobs.worker.instruments.timing import Clock, CudaClock
from hpml_jobs.worker.process_group import SingleProcess
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

    @property
    def device(self) -> float:
        """Milliseconds of the device in an iteration."""
        return self.copy + self.forward + self.backward + self.optimizer


class ScriptedGpu:
    """The times of a host and of its device's queue, in milliseconds."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.host_ms = 0.0
        self.queued_until_ms = 0.0
        self.synchronizations = 0
        self.events = 0

    def load(self) -> None:
        """Let the host load a batch; the device goes on."""
        self.host_ms += self.script.load

    def launch(self, work_ms: float) -> None:
        """Let the host queue work, which begins when the work before it is done."""
        self.queued_until_ms = max(self.queued_until_ms, self.host_ms) + work_ms
        self.host_ms += self.script.launch

    def synchronize(self, _device: object = None) -> None:
        """Let the host wait for the device."""
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
            if event._at_ms is None or event._readable_after >= self._gpu.synchronizations:
                raise RuntimeError("an event was read before a synchronize")
        return other._at_ms - self._at_ms


class ScriptedSingle(SingleProcess):
    """The plain loop on CPU tensors, with the clock of a GPU."""

    def make_clock(self) -> Clock:
        """Return the clock of a GPU, whose events are scripted."""
        return CudaClock(GPU)


class ScriptedImages(NamedTuple):
    """The images of a batch, whose copy takes time of the device."""

    images: Tensor
    gpu: ScriptedGpu

    def to(self, *_: Any, **__: Any) -> Tensor:
        """Queue the copy."""
        self.gpu.launch(self.gpu.script.copy)
        return self.images


@contextmanager
def scripted_gpu(monkeypatch: pytest.MonkeyPatch, script: Script) -> Iterator[ScriptedGpu]:
    """Replace CUDA's events and synchronization; the parts of an iteration take scripted times."""
    gpu = ScriptedGpu(script)
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: ScriptedEvent(gpu))
    monkeypatch.setattr(torch.cuda, "synchronize", gpu.synchronize)
    monkeypatch.setattr(timing, "perf_counter_ns", gpu.perf_counter_ns)
    build, batches = models.build, Training.batches

    def scripted_build(*arguments: Any) -> nn.Module:
        model = build(*arguments)
        model.register_forward_hook(_launch_passes(gpu))
        return model

    def scripted_batches(training: Training, number: int) -> Iterable[Any]:
        for images, targets in batches(training, number):
            gpu.load()
            yield ScriptedImages(images, gpu), targets

    monkeypatch.setattr(models, "build", scripted_build)
    monkeypatch.setattr(Training, "batches", scripted_batches)
    handle = register_optimizer_step_post_hook(lambda *_: gpu.launch(script.optimizer))
    benchmark = torch.backends.cudnn.benchmark
    try:
        yield gpu
    finally:
        handle.remove()
        torch.backends.cudnn.benchmark = benchmark


def _launch_passes(gpu: ScriptedGpu) -> Any:
    """Return a forward hook that queues the forward pass, and the backward pass when it begins."""

    def launch(_module: nn.Module, _inputs: Any, outputs: Tensor) -> None:
        gpu.launch(gpu.script.forward)
        if outputs.requires_grad:
            outputs.register_hook(lambda _: gpu.launch(gpu.script.backward))

    return launch
