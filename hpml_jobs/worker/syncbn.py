"""BatchNorm over the images of all ranks: torch's SyncBatchNorm on GPUs, the same sums on CPUs.

torch's own runs on GPUs only. With the statistics of the whole global batch N processes compute
what one would (tests/unit/worker/test_strategies.py).
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from hpml_jobs.core.cell import Device

Convert = Callable[[nn.Module], nn.Module]


def over_all_ranks(model: nn.Module, device: Device) -> nn.Module:
    """The model with every BatchNorm replaced; parameters and buffers are the same tensors."""
    if device is Device.CUDA:
        convert: Convert = nn.SyncBatchNorm.convert_sync_batchnorm
        return convert(model)
    if isinstance(model, _BatchNorm):
        return GlooSyncBatchNorm(model)
    for name, child in model.named_children():
        setattr(model, name, over_all_ranks(child, device))
    return model


class _Sum(torch.autograd.Function):
    """The sum over ranks; what it means to every rank's loss flows back to each."""

    @staticmethod
    def forward(_: FunctionCtx, mine: Tensor) -> Tensor:
        whole = mine.clone()
        dist.all_reduce(whole)
        return whole

    @staticmethod
    @once_differentiable
    def backward(_: FunctionCtx, *gradients: Tensor) -> Tensor:
        whole = gradients[0].clone()
        dist.all_reduce(whole)
        return whole


def over_ranks(mine: Tensor) -> Tensor:
    """The sum of all ranks' tensors, shape as given; gradients of all ranks' losses flow back."""
    whole: Tensor = _Sum.apply(mine)
    return whole


class GlooSyncBatchNorm(_BatchNorm):
    """A BatchNorm whose mean and variance are those of all ranks' values, by channel.

    Ranks may have different numbers of values. Values are (images, channels, …).
    """

    def __init__(self, local: _BatchNorm) -> None:
        super().__init__(local.num_features, local.eps, local.momentum, affine=False)
        self.affine = local.affine
        self.weight, self.bias = local.weight, local.bias
        self.running_mean, self.running_var = local.running_mean, local.running_var
        self.num_batches_tracked = local.num_batches_tracked

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"BatchNorm needs (images, channels, …), not {input.dim()} dimension")

    def forward(self, input: Tensor) -> Tensor:
        """Normalised values, shape as given; in evaluation by the running statistics."""
        if not self.training or not dist.is_initialized():
            return super().forward(input)
        self._check_input_dim(input)
        others = [axis for axis in range(input.dim()) if axis != 1]
        shape = [1, -1] + [1] * (input.dim() - 2)
        values = input.new_tensor(float(input.numel() // input.shape[1]))
        dist.all_reduce(values)
        mean = over_ranks(input.sum(others)) / values
        centred = input - mean.view(shape)
        variance = over_ranks(centred.square().sum(others)) / values
        self._remember(mean.detach(), variance.detach() * values / (values - 1))
        normal = centred * (variance + self.eps).rsqrt().view(shape)
        if not self.affine:
            return normal
        return normal * self.weight.view(shape) + self.bias.view(shape)

    def _remember(self, mean: Tensor, unbiased: Tensor) -> None:
        """Move the running statistics towards these."""
        if self.running_mean is None or self.running_var is None:
            return
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        share = self.momentum
        if share is None:  # the plain average of all batches
            share = 1 / float(self.num_batches_tracked or 1)
        self.running_mean.lerp_(mean, share)
        self.running_var.lerp_(unbiased, share)
