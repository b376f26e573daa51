"""Scales from the statistics of a tensor, and rounding to int8 and int32."""

from math import ceil
from typing import NamedTuple

import torch
from torch import Tensor

from hpml_jobs.core.quantization import Bound
from hpml_jobs.errors import HpmlError

INT8_MIN, INT8_MAX = -128, 127
"""Range of weights and activations."""

INT32_MAX = 2**31 - 1
"""Largest bias and accumulator."""


class Statistics(NamedTuple):
    """Distribution of the values of each row: float64 tensors of shape (rows,).

    A tensor is one row, or one row per output channel. `percentile` is of the absolute values.
    """

    least: Tensor
    most: Tensor
    mean: Tensor
    sigma: Tensor
    percentile: Tensor


def statistics(name: str, rows: Tensor, percentile: float) -> Statistics:
    """Return the statistics of a tensor of shape (rows, values).

    The percentile is the least absolute value that covers `percentile` percent of the values.

    Raises:
        HpmlError: a value is NaN or infinite; the message says `name`.
    """
    if not bool(torch.isfinite(rows).all()):
        raise HpmlError(
            f"{name} contain NaN or infinity, so they have no scale: train with a smaller "
            "workload.lr="
        )
    values = rows.detach().double()
    count = values.shape[1]
    rank = min(count, max(1, ceil(percentile / 100 * count - 1e-9)))
    return Statistics(
        least=values.amin(1),
        most=values.amax(1),
        mean=values.mean(1),
        sigma=values.std(1, correction=0),
        percentile=values.abs().kthvalue(rank, dim=1).values,
    )


def scales(name: str, rows: Statistics, bound: Bound) -> Tensor:
    """Return the scale of each row, bound / 127: float64 of shape (rows,).

    Raises:
        HpmlError: a bound is 0; the message says `name`.
    """
    if bound is Bound.RANGE:
        bounds = torch.maximum(rows.least.abs(), rows.most.abs())
    elif bound is Bound.SIGMA:
        ends = (rows.mean - 3 * rows.sigma, rows.mean + 3 * rows.sigma)
        bounds = torch.maximum(ends[0].abs(), ends[1].abs())
    else:
        bounds = rows.percentile
    for row in torch.nonzero(bounds == 0).flatten().tolist():
        channel = f", output channel {row}," if len(bounds) > 1 else ""
        if rows.least[row] == rows.most[row]:
            raise HpmlError(
                f"{name}{channel} are all 0, so their scale would be 0: train longer, or change "
                "workload.lr="
            )
        raise HpmlError(
            f"{name}{channel} are 0 up to the percentile, so their scale would be 0: increase "
            "quantize.percentile="
        )
    return bounds / INT8_MAX


def nearest(values: Tensor, scale: Tensor) -> Tensor:
    """Return values / scale rounded to integers, not clipped, as float64."""
    return (values.detach().double() / scale).round()


def count_clipped(integers: Tensor) -> int:
    """Return how many integers are outside -128…127."""
    return int(((integers < INT8_MIN) | (integers > INT8_MAX)).sum())


def to_int8(name: str, integers: Tensor) -> Tensor:
    """Clip to -128…127 and convert to int8, exactly.

    Raises:
        HpmlError: a value is NaN or not an integer; the message says `name`.
    """
    clipped = integers.clamp(INT8_MIN, INT8_MAX)
    converted = clipped.to(torch.int8)
    if not torch.equal(converted.to(clipped.dtype), clipped):
        raise HpmlError(f"{name} contain NaN or a fraction, so they are not int8")
    return converted


def to_int32(name: str, integers: Tensor) -> Tensor:
    """Convert to int32 without clipping.

    Raises:
        HpmlError: a value does not fit; the message says `name`.
    """
    largest = float(integers.abs().max())
    if not largest <= INT32_MAX:
        raise HpmlError(f"{name} reach {largest:.4g}, which does not fit into 32 bits")
    return integers.to(torch.int32)
