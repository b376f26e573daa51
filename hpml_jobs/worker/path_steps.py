"""What depends on the training path (docs/keys.md): steps, micro-steps and torch.compile."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.training_path import AMPERE, CompileMode, Precision, TrainingPath
from hpml_jobs.worker.instruments.timing import Devices, IterationTimes

HALF = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}
"""The dtype of torch.autocast, or of the parameters that a strategy gathers."""


class PathSteps:
    """Autocast around forward and loss, loss scaling around backward and the optimizer's step.

    Without autocast they are the plain steps; `autocast` is false where the strategy casts the
    parameters itself. Weights and gradients are fp32 in every precision, except in a `HalfReplica`,
    whose loss is not scaled. Every optimizer needs steps of its own, since the scale of the loss
    follows it.
    """

    def __init__(
        self,
        path: TrainingPath,
        device: torch.device,
        *,
        autocast: bool = True,
        scales_loss: bool = True,
    ) -> None:
        dtype = half_dtype(path)
        self._device = device
        self._channels_last = path.channels_last
        self._autocast: AbstractContextManager[Any] = (
            torch.autocast(device.type, dtype) if dtype and autocast else nullcontext()
        )
        scales_loss &= dtype is torch.float16
        self._scaler = torch.amp.GradScaler(device.type) if scales_loss else None

    def place(self, model: nn.Module) -> nn.Module:
        """Return a model on the device, its convolutions in the layout of the path."""
        model = model.to(self._device)
        return (
            model.to(memory_format=torch.channels_last)
            if self._channels_last
            else model
        )

    def in_layout(self, inputs: Any) -> Any:
        """Return inputs on the device in the layout of the path."""
        return (
            inputs.to(memory_format=torch.channels_last)
            if self._channels_last
            else inputs
        )

    def forward(self) -> AbstractContextManager[Any]:
        """Return the context of forward and loss."""
        return self._autocast

    def backward(self, loss: Tensor, weight: float = 1.0) -> None:
        """Add the gradients of a loss times its weight in the iteration.

        With fp16 they are scaled so that small ones are not lost.
        """
        if weight != 1.0:
            loss = loss * weight
        (self._scaler.scale(loss) if self._scaler else loss).backward()  # type: ignore[no-untyped-call]

    def step(self, optimizer: Optimizer) -> None:
        """Change the weights; with fp16 not in an iteration whose gradients overflow."""
        if self._scaler:
            self._scaler.step(optimizer)
            self._scaler.update()
        else:
            optimizer.step()


class AutocastReplica(nn.Module):
    """A model whose forward enters autocast itself.

    DataParallel runs each replica in a new thread, and torch passes on to it that autocast is
    enabled, but not in which dtype: there it would be float16 whatever was chosen.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.model = model
        self._dtype = dtype

    def forward(self, inputs: Tensor) -> Any:
        """Return the model's outputs, computed under autocast."""
        with torch.autocast(inputs.device.type, self._dtype):
            return self.model(inputs)


def half_dtype(path: TrainingPath) -> torch.dtype | None:
    """Return the dtype that forward computes in instead of fp32; None in the other precisions."""
    return None if path.precision is None else HALF.get(path.precision)


def with_autocast(model: nn.Module, path: TrainingPath) -> nn.Module:
    """Return a model that enters autocast in every thread; the model itself without autocast."""
    dtype = half_dtype(path)
    return model if dtype is None else AutocastReplica(model, dtype)


def set_modes(cell: Cell, devices: Devices) -> None:
    """Set torch's modes of a cell's training path for the whole process.

    Raises:
        HpmlError: a GPU has no tensor cores for the precision.
    """
    path = cell.path
    torch.backends.cudnn.benchmark = cell.searches_kernels
    if devices[0].type != "cuda":
        return
    if path.precision in (Precision.TF32, Precision.BF16):
        for device in devices:
            if torch.cuda.get_device_capability(device) < (8, 0):
                raise HpmlError(
                    f"precision={path.precision} on a {torch.cuda.get_device_name(device)}: it "
                    f"needs {AMPERE}; use precision=fp16"
                )
    if path.precision in (Precision.FP32, Precision.TF32):
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = (
            path.tf32
        )


class MicroSteps:
    """The micro-steps of an epoch, in groups of `accumulate`; the last group may be smaller.

    `samples` are those of the epoch on this rank, and `batch` those of a full micro-step. With
    `accumulate=1` every micro-step is an iteration.
    """

    def __init__(self, accumulate: int, count: int, batch: int, samples: int) -> None:
        self.count = count
        self._accumulate = accumulate
        self._in_group = batch * accumulate
        self._samples = samples

    def ends_iteration(self, index: int) -> bool:
        """Return whether gradients are exchanged and weights changed after a micro-step."""
        return (index + 1) % self._accumulate == 0 or index + 1 == self.count

    def weight(self, index: int, samples: int) -> float:
        """Return the share of a micro-step in the mean loss of its iteration."""
        if self._accumulate == 1:
            return 1.0
        before = index // self._accumulate * self._in_group
        return samples / min(self._in_group, self._samples - before)

    def sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum over the micro-steps of each iteration, along the first axis."""
        starts = np.arange(0, len(values), self._accumulate)
        sums: NDArray[np.float64] = np.add.reduceat(values, starts, axis=0)
        return sums

    def least_sum(self, values: Sequence[float]) -> float:
        """Return the least sum of an iteration; one with fewer micro-steps counts if it is alone.

        Of the host's times the least is taken, since a host far ahead of the device waits for it.
        """
        whole = max(1, len(values) // self._accumulate)
        return float(self.sums(np.array(values))[:whole].min())

    def sample_sums(self, samples: Sequence[int]) -> list[int]:
        """Return the number of samples of each iteration."""
        width = self._accumulate
        return [
            sum(samples[start : start + width])
            for start in range(0, len(samples), width)
        ]

    def mean_losses(self, losses: Tensor, samples: Sequence[int]) -> Tensor:
        """Return the mean loss over the samples of each iteration."""
        if self._accumulate == 1:
            return losses
        weights = np.array(samples, dtype=np.float64)
        sums = self.sums(losses.double().numpy() * weights) / self.sums(weights)
        return torch.from_numpy(sums).to(losses.dtype)

    def times(self, times: IterationTimes) -> IterationTimes:
        """Return the times of the iterations from those of their micro-steps."""
        if self._accumulate == 1:
            return times
        step_s, stall_s = self.sums(times.step_s), self.sums(times.stall_s)
        return times._replace(
            step_s=step_s, stall_s=stall_s, batch_stall_s=times.stall_s
        )


BACKEND = "inductor"


def compiled(replica: nn.Module, mode: CompileMode | None) -> nn.Module:
    """Return the model whose forward runs the compiled replica; the replica itself without a mode.

    It is compiled inside its wrapper. While DDP's forward runs, torch splits the graph at DDP's
    buckets (DDPOptimizer), so that their messages overlap with backward. A new wrapper around the
    same compiled replica compiles nothing again. Each shape of a batch has graphs of its own,
    compiled when it first comes, in the warm-up epoch.
    """
    if mode is None:
        return replica
    model: Any = torch.compile(replica, backend=BACKEND, mode=mode.value, dynamic=False)
    return model  # type: ignore[no-any-return]
