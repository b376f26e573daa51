"""A layer's weights as int8, and the layer with what those integers stand for."""

import copy
from typing import NamedTuple

from torch import Tensor, nn

from hpml_jobs.core.quantization import Bound
from hpml_jobs.worker.quantization.layers import Stage, Weighted
from hpml_jobs.worker.quantization.scales import beyond, int8, nearest, scales, statistics


class Scheme(NamedTuple):
    """How scales are made: what they cover, and whether every output channel has its own."""

    bound: Bound
    percentile: float
    per_channel: bool = False


class Weights(NamedTuple):
    """int8 in the layer's own shape, scales (1,) or (output channels,), how many were clipped."""

    integers: Tensor
    scales: Tensor
    clipped: int

    @property
    def values(self) -> Tensor:
        """What the integers stand for, fp32."""
        return (self.integers * by_channel(self.scales, self.integers.ndim)).float()


def by_channel(scale: Tensor, dimensions: int) -> Tensor:
    """Scales by output channel, shaped to multiply weights, whose first dimension that is."""
    return scale.reshape(-1, *[1] * (dimensions - 1))


def quantize_weights(name: str, layer: Weighted, scheme: Scheme) -> Weights:
    """The layer's weights in integers.

    Raises:
        HpmlError: they are not finite, or a scale would be 0.
    """
    whose, weight = f"the weights of {name}", layer.weight.detach()
    rows = weight.reshape(len(weight) if scheme.per_channel else 1, -1)
    scale = scales(whose, statistics(whose, rows, scheme.percentile), scheme.bound)
    integers = nearest(weight, by_channel(scale, weight.ndim))
    return Weights(int8(whose, integers), scale, beyond(integers))


def dequantized(stage: Stage, weights: Weights) -> Stage:
    """The same stage in fp32, with the weights that the integers stand for."""
    layer = copy.deepcopy(stage.layer)
    layer.weight = nn.Parameter(weights.values, requires_grad=False)
    return stage._replace(layer=layer)
