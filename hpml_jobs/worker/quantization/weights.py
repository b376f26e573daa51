"""A layer's weights as int8, and the layer with the values of these integers."""

import copy
from typing import NamedTuple

from torch import Tensor, nn

from hpml_jobs.core.quantization import Bound
from hpml_jobs.worker.quantization.layers import Stage, Weighted
from hpml_jobs.worker.quantization.scales import (
    count_clipped,
    nearest,
    scales,
    statistics,
    to_int8,
)


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
