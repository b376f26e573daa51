"""The distributions of weights and layer outputs, their scales, and the weights in int8."""

import copy
from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from hpml_jobs.core.quantization import BINS, Bound, Spread, SpreadOf
from hpml_jobs.errors import HpmlError
from hpml_jobs.worker.quantization.layers import Chain, Stage, Weighted

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


class Scheme(NamedTuple):
    """The choice of scales: their bound, and one per layer or one per output channel."""

    bound: Bound
    percentile: float
    per_channel: bool = False


class Weights(NamedTuple):
    """int8 in the layer's shape, scales (1,) or (output channels,), and the number clipped."""

    integers: Tensor
    scales: Tensor
    clipped: int

    @property
    def values(self) -> Tensor:
        """Integers times scales in fp32."""
        return (self.integers * per_output_channel(self.scales, self.integers.ndim)).float()


def per_output_channel(scale: Tensor, dimensions: int) -> Tensor:
    """Reshape scales to multiply weights, whose first dimension is the output channel."""
    return scale.reshape(-1, *[1] * (dimensions - 1))


def quantize_weights(name: str, layer: Weighted, scheme: Scheme) -> Weights:
    """Quantize a layer's weights to int8.

    Raises:
        HpmlError: they contain NaN or infinity, or a scale would be 0.
    """
    title, weight = f"the weights of {name}", layer.weight.detach()
    rows = weight.reshape(len(weight) if scheme.per_channel else 1, -1)
    scale = scales(title, statistics(title, rows, scheme.percentile), scheme.bound)
    integers = nearest(weight, per_output_channel(scale, weight.ndim))
    return Weights(to_int8(title, integers), scale, count_clipped(integers))


def dequantize(stage: Stage, weights: Weights) -> Stage:
    """Return the stage in fp32 with the values of the integer weights."""
    layer = copy.deepcopy(stage.layer)
    layer.weight = nn.Parameter(weights.values, requires_grad=False)
    return stage._replace(layer=layer)


INPUT = "input"


class Profile(NamedTuple):
    """The spreads, weights first, and by name the statistics of the input and of layer outputs."""

    spreads: tuple[Spread, ...]
    activations: dict[str, Statistics]


@torch.no_grad()
def profile(network: Chain, images: Sequence[Tensor], percentile: float) -> Profile:
    """Run the network layer by layer on batches of calibration images.

    Raises:
        HpmlError: weights, images or outputs contain NaN or infinity.
    """
    spreads: list[Spread] = []
    for stage in network.stages:
        values = stage.layer.weight.detach().reshape(1, -1)
        weights = statistics(f"the weights of {stage.name}", values, percentile)
        spreads.append(_spread(stage.name, SpreadOf.WEIGHTS, values, weights))
    activations: dict[str, Statistics] = {}
    batches = list(images)
    steps = {INPUT: network.enter} | {stage.name: stage.forward for stage in network.stages}
    for name, forward in steps.items():
        batches = [forward(batch) for batch in batches]
        values = torch.cat([batch.reshape(-1) for batch in batches]).reshape(1, -1)
        activations[name] = statistics(describe_outputs(name), values, percentile)
        spreads.append(_spread(name, SpreadOf.ACTIVATIONS, values, activations[name]))
    return Profile(tuple(spreads), activations)


def describe_outputs(name: str) -> str:
    """Return how a message calls the values of the input or of a layer."""
    return "the calibration images" if name == INPUT else f"the outputs of {name}"


def _spread(name: str, what: SpreadOf, values: Tensor, row: Statistics) -> Spread:
    """Return the distribution of one row of values, with a histogram."""
    least, most, mean, sigma, percentile = (float(statistic) for statistic in row)
    counts, _ = np.histogram(values.numpy(), bins=BINS, range=(least, most))
    return Spread(
        layer=name,
        what=what,
        values=values.numel(),
        least=least,
        most=most,
        mean=mean,
        sigma=sigma,
        percentile=percentile,
        counts=tuple(counts.tolist()),
    )
