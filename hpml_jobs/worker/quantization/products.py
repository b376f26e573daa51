"""Products of int8, summed exactly in int32."""

from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.functional import pad


def multiply(left: Tensor, right: Tensor) -> Tensor:
    """The matrix product of int8 (m, k) and int8 (k, n) as int32 (m, n)."""
    if fast_is_exact():
        return torch._int_mm(left, right)
    return left.int() @ right.int()


@cache
def fast_is_exact() -> bool:
    """Whether torch's fast product is right on this processor, tried on the largest integers.

    Without VNNI instructions oneDNN adds pairs of products in 16 bits, where they saturate.
    """
    left = torch.full((32, 64), 127, dtype=torch.int8)
    right = torch.full((64, 32), 127, dtype=torch.int8)
    right[:, ::2] = -128
    try:
        return torch.equal(torch._int_mm(left, right), left.int() @ right.int())
    except RuntimeError:  # a build or processor that has no such product
        return False


def convolve(images: Tensor, weights: Tensor, layer: nn.Conv2d) -> Tensor:
    """int8 (n, c, h, w) with the layer's int8 weights, (n, outputs, height, width) in int32."""
    under = patches(images, layer)
    _, number, height, width = under.shape
    sums = multiply(weights.flatten(1), under.flatten(1))
    return sums.reshape(-1, number, height, width).transpose(0, 1)


def patches(images: Tensor, layer: nn.Conv2d) -> Tensor:
    """What a convolution's kernel lies on at every place: (k, n, height, width), int8.

    Zeros pad, since zero is the integer of 0.
    """
    (down, right), (tall, wide) = layer.stride, layer.kernel_size
    over, beside = (int(size) for size in layer.padding)
    padded = pad(images, (beside, beside, over, over))
    windows = padded.unfold(2, tall, down).unfold(3, wide, right)  # n, c, h, w, tall, wide
    return windows.permute(1, 4, 5, 0, 2, 3).flatten(0, 2)
