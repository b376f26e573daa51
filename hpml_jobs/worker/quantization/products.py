"""Matrix product and convolution of int8, summed exactly in int32."""

from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.functional import pad


def multiply(left: Tensor, right: Tensor) -> Tensor:
    """Return the matrix product of int8 (m, k) and int8 (k, n) as int32 (m, n)."""
    if int_mm_is_exact():
        return torch._int_mm(left, right)
    return left.int() @ right.int()


@cache
def int_mm_is_exact() -> bool:
    """Return whether `torch._int_mm` is exact on this processor, tested with the largest integers.

    Without VNNI instructions oneDNN adds pairs of products in 16 bits, which saturate.
    """
    left = torch.full((32, 64), 127, dtype=torch.int8)
    right = torch.full((64, 32), 127, dtype=torch.int8)
    right[:, ::2] = -128
    try:
        return torch.equal(torch._int_mm(left, right), left.int() @ right.int())
    except RuntimeError:  # not available in this build or on this processor
        return False


def convolve(images: Tensor, weights: Tensor, layer: nn.Conv2d) -> Tensor:
    """Convolve int8 (n, c, h, w) with int8 weights; return int32 (n, outputs, height, width).

    Stride and padding are those of `layer`.
    """
    windows = unfold(images, layer)
    _, number, height, width = windows.shape
    sums = multiply(weights.flatten(1), windows.flatten(1))
    return sums.reshape(-1, number, height, width).transpose(0, 1)


def unfold(images: Tensor, layer: nn.Conv2d) -> Tensor:
    """Return the values under the kernel at every position: int8 (k, n, height, width).

    The padding is zero, which is the integer of the value 0.
    """
    (stride_y, stride_x), (kernel_y, kernel_x) = layer.stride, layer.kernel_size
    pad_y, pad_x = (int(size) for size in layer.padding)
    padded = pad(images, (pad_x, pad_x, pad_y, pad_y))
    # n, c, height, width, kernel_y, kernel_x
    windows = padded.unfold(2, kernel_y, stride_y).unfold(3, kernel_x, stride_x)
    return windows.permute(1, 4, 5, 0, 2, 3).flatten(0, 2)
