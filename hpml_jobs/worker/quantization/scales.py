"""From the values of a tensor to the scale of its integers, and to the integers."""

from math import ceil
from typing import NamedTuple

import torch
from torch import Tensor

from hpml_jobs.core.quantization import Bound
from hpml_jobs.errors import HpmlError

LEAST, MOST = -128, 127
"""The integers of weights and activations."""

INT32 = 2**31 - 1
"""The largest integer of biases and accumulators."""


class Statistics(NamedTuple):
    """How the values of every row are spread: float64, one number per row.

    A tensor is one row, or one for each output channel. `percentile` is of the absolute values.
    """

    least: Tensor
    most: Tensor
    mean: Tensor
    sigma: Tensor
    percentile: Tensor


def statistics(whose: str, rows: Tensor, percentile: float) -> Statistics:
    """Of (rows, values); the percentile is the least absolute value that covers so many percent.

    Raises:
        HpmlError: a value is NaN or infinite; `whose` names them.
    """
    if not bool(torch.isfinite(rows).all()):
        raise HpmlError(
            f"{whose} are not all finite (NaN or infinite), so they have no scale: "
            "train with a smaller workload.lr"
        )
    values = rows.detach().double()
    number = values.shape[1]
    covering = min(number, max(1, ceil(percentile / 100 * number - 1e-9)))
    return Statistics(
        least=values.amin(1),
        most=values.amax(1),
        mean=values.mean(1),
        sigma=values.std(1, correction=0),
        percentile=values.abs().kthvalue(covering, dim=1).values,
    )


def scales(whose: str, found: Statistics, bound: Bound) -> Tensor:
    """The scale of every row, float64: bound / 127.

    Raises:
        HpmlError: a bound is 0, so that no integer could stand for anything.
    """
    if bound is Bound.RANGE:
        bounds = torch.maximum(found.least.abs(), found.most.abs())
    elif bound is Bound.SIGMA:
        ends = (found.mean - 3 * found.sigma, found.mean + 3 * found.sigma)
        bounds = torch.maximum(ends[0].abs(), ends[1].abs())
    else:
        bounds = found.percentile
    for row in torch.nonzero(bounds == 0).flatten().tolist():
        channel = f", output channel {row}," if len(bounds) > 1 else ""
        if found.least[row] == found.most[row]:
            raise HpmlError(
                f"{whose}{channel} are all 0: their scale would be 0; train longer, or with "
                "another workload.lr"
            )
        raise HpmlError(
            f"{whose}{channel} are 0 up to the percentile, so their scale would be 0; take a "
            "larger quantize.percentile"
        )
    return bounds / MOST


def nearest(values: Tensor, scale: Tensor) -> Tensor:
    """The integers that are nearest to values / scale, not clipped yet: float64."""
    return (values.detach().double() / scale).round()


def beyond(integers: Tensor) -> int:
    """How many are outside -128…127."""
    return int(((integers < LEAST) | (integers > MOST)).sum())


def int8(whose: str, integers: Tensor) -> Tensor:
    """Clipped to -128…127, as int8; each is seen to be an integer in that range.

    Raises:
        HpmlError: one is not.
    """
    clipped = integers.clamp(LEAST, MOST)
    found = clipped.to(torch.int8)
    if not torch.equal(found.to(clipped.dtype), clipped):
        raise HpmlError(
            f"{whose} are not all integers in {LEAST}…{MOST}: NaN or a fraction among them"
        )
    return found


def int32(whose: str, integers: Tensor) -> Tensor:
    """As int32; nothing is clipped.

    Raises:
        HpmlError: one does not fit.
    """
    most = float(integers.abs().max())
    if not most <= INT32:
        raise HpmlError(f"{whose} reach {most:.4g}, which does not fit into 32 bits")
    return integers.to(torch.int32)
