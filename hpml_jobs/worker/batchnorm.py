"""BatchNorm over the images of all ranks: torch's SyncBatchNorm on GPUs, our own on CPUs.

torch's SyncBatchNorm runs on GPUs only. With the statistics of the global batch N processes compute
the same as one process (tests/unit/worker/test_strategies.py).
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from hpml_jobs.core.strategies import Device

Convert = Callable[[nn.Module], nn.Module]


def convert_sync_batchnorm(model: nn.Module, device: Device) -> nn.Module:
    """Replace every BatchNorm of the model; parameters and buffers stay the same tensors."""
    if device is Device.CUDA:
        convert: Convert = nn.SyncBatchNorm.convert_sync_batchnorm
        return convert(model)
    if isinstance(model, _BatchNorm):
        return GlooSyncBatchNorm(model)
    for name, child in model.named_children():
        setattr(model, name, convert_sync_batchnorm(child, device))
    return model


class _SumOverRanks(torch.autograd.Function):
    """Sum over ranks; backward() sums the gradients of all ranks' losses."""

    @staticmethod
    def forward(_: FunctionCtx, values: Tensor) -> Tensor:
        total = values.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    @once_differentiable
    def backward(_: FunctionCtx, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone()
        dist.all_reduce(total)
        return total


def sum_over_ranks(values: Tensor) -> Tensor:
    """Return the elementwise sum over all ranks; it is differentiable."""
    total: Tensor = _SumOverRanks.apply(values)
    return total


class GlooSyncBatchNorm(_BatchNorm):
    """BatchNorm with mean and variance per channel over the values of all ranks.

    The input has shape (images, channels, …); ranks may have different numbers of images.
    """

    def __init__(self, local: _BatchNorm) -> None:
        super().__init__(local.num_features, local.eps, local.momentum, affine=False)
        self.affine = local.affine
        self.weight, self.bias = local.weight, local.bias
        self.running_mean, self.running_var = local.running_mean, local.running_var
        self.num_batches_tracked = local.num_batches_tracked

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(
                f"BatchNorm needs an input (images, channels, …), not {input.dim()} dimension"
            )

    def forward(self, input: Tensor) -> Tensor:
        """Normalize the input, shape unchanged; in evaluation with the running statistics."""
        if not self.training or not dist.is_initialized():
            return super().forward(input)
        self._check_input_dim(input)
        other_axes = [axis for axis in range(input.dim()) if axis != 1]
        shape = [1, -1] + [1] * (input.dim() - 2)
        count = input.new_tensor(float(input.numel() // input.shape[1]))
        dist.all_reduce(count)
        mean = sum_over_ranks(input.sum(other_axes)) / count
        centered = input - mean.view(shape)
        variance = sum_over_ranks(centered.square().sum(other_axes)) / count
        self._update_running(mean.detach(), variance.detach() * count / (count - 1))
        normalized = centered * (variance + self.eps).rsqrt().view(shape)
        if not self.affine:
            return normalized
        return normalized * self.weight.view(shape) + self.bias.view(shape)

    def _update_running(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running mean and variance towards these (unbiased variance)."""
        if self.running_mean is None or self.running_var is None:
            return
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        weight = self.momentum
        if weight is None:  # the plain average of all batches
            weight = 1 / float(self.num_batches_tracked or 1)
        self.running_mean.lerp_(mean, weight)
        self.running_var.lerp_(variance, weight)
