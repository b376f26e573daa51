"""A scripted GPU below a script that is measured; the script calls `install` before its first step.

The model, its step and its loader take the times of `Script`; `created` has the events of CUDA that
were created in each window.
"""

import torch
from torch import Tensor, nn

from hpml_jobs.worker.instruments import timing
from hpml_jobs.worker.instruments.timing import DeviceClock, Window
from hpml_jobs.worker.observer import training
from hpml_jobs.worker.observer.recording import Recording
from tests.unit.worker.scripted_gpu import GPU, Script, ScriptedEvent, ScriptedGpu

gpu = ScriptedGpu(Script())
created: list[int] = []

_take = training.ObservedTraining.take


def install() -> None:
    """Replace the clocks of this process."""
    torch.cuda.Event = lambda enable_timing: ScriptedEvent(gpu)
    torch.cuda.synchronize = gpu.synchronize
    timing.perf_counter_ns = gpu.perf_counter_ns
    training.clock_of = lambda _: DeviceClock(GPU)
    training.Window, training.ObservedTraining.take = CountedWindow, _count


class CountedWindow(Window):
    """A window that knows how many events there were when it began."""

    def __enter__(self) -> "CountedWindow":
        super().__enter__()
        self.events_before = gpu.events
        return self


def _count(measured: training.ObservedTraining, recording: Recording) -> None:
    created.append(gpu.events - recording.window.events_before)
    _take(measured, recording)


class Network(nn.Linear):
    """A model whose forward pass the device computes; the backward pass follows it."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Queue the forward pass, and the backward pass when it begins."""
        outputs = super().forward(inputs)
        gpu.launch(gpu.script.forward)
        if outputs.requires_grad:
            outputs.register_hook(lambda _: gpu.launch(gpu.script.backward))
        return outputs


class Steps(torch.optim.SGD):
    """An optimizer whose steps the device computes."""

    def step(self, closure: None = None) -> None:
        """Queue a step."""
        super().step(closure)
        gpu.launch(gpu.script.optimizer)


def collate(items: list[tuple[Tensor, ...]]) -> list[Tensor]:
    """Load a batch."""
    gpu.load()
    return [torch.stack(tensors) for tensors in zip(*items, strict=True)]
