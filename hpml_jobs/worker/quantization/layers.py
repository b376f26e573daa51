"""What is quantized: the layers of a network, their scales, and their weights in int8."""

import copy
from collections.abc import Iterable, Sequence
from math import ceil
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.quantization import BINS, Bound, Spread, SpreadOf
from hpml_jobs.worker.data import datasets

Weighted = nn.Conv2d | nn.Linear

SUPPORTED = (
    "quantization supports Conv2d (one group, no dilation, padded with zeros), Linear, ReLU, "
    "MaxPool2d, Flatten, Identity and Dropout in an nn.Sequential"
)


TEST_BYTES = 4_000_000_000
"""Memory for the test images at most; they are kept because every step evaluates them."""

CALIBRATION_BYTES = 500_000_000
"""Memory for the calibration images at most; the outputs of every layer are kept too."""


class LayerStage(NamedTuple):
    """A layer with weights, and the modules between it and the next such layer."""

    name: str
    layer: Weighted
    then: tuple[nn.Module, ...]

    def forward(self, values: Tensor) -> Tensor:
        """Return the input of the next layer in fp32."""
        return apply(self.then, self.layer(values))


class Chain(NamedTuple):
    """A network as a sequence of stages; `entry` are the modules before the first layer."""

    entry: tuple[nn.Module, ...]
    stages: tuple[LayerStage, ...]

    def enter(self, images: Tensor) -> Tensor:
        """Return the input of the first layer in fp32."""
        return apply(self.entry, images)

    def outputs(self, images: Tensor) -> Tensor:
        """Return the outputs of the last layer in fp32."""
        values = self.enter(images)
        for stage in self.stages:
            values = stage.forward(values)
        return values


def apply(modules: Iterable[nn.Module], values: Tensor) -> Tensor:
    """Apply ReLU, pooling and flattening to values of any dtype; never in place."""
    for module in modules:
        values = values.relu() if isinstance(module, nn.ReLU) else module(values)
    return values


def chain(model: nn.Module) -> Chain:
    """Return the network's layers in order, without computing anything.

    Raises:
        HpmlError: an unsupported layer, or no layer with weights.
    """
    entry: list[nn.Module] = []
    layers: list[tuple[str, Weighted, list[nn.Module]]] = []
    for name, module in model.named_modules(remove_duplicate=False):
        if type(module) in (nn.Sequential, nn.Identity, nn.Dropout):
            continue
        if (layer := _weighted(name, module)) is not None:
            layers.append((name or type(module).__name__, layer, []))
        elif type(module) in (nn.ReLU, nn.MaxPool2d, nn.Flatten):
            (layers[-1][2] if layers else entry).append(module)
        else:
            raise _unsupported(name, module)
    if not layers:
        raise HpmlError(f"the network has no layer with weights: {SUPPORTED}")
    return Chain(
        tuple(entry),
        tuple(LayerStage(name, layer, tuple(then)) for name, layer, then in layers),
    )


def _weighted(name: str, module: nn.Module) -> Weighted | None:
    """Return the module if it has weights, else None.

    Raises:
        HpmlError: an unsupported kind of convolution.
    """
    if type(module) is nn.Linear:
        return module
    if type(module) is not nn.Conv2d:
        return None
    is_supported = (
        module.groups == 1
        and module.dilation == (1, 1)
        and module.padding_mode == "zeros"
    )
    if not is_supported or isinstance(module.padding, str):
        raise _unsupported(name, module)
    return module


def _unsupported(name: str, module: nn.Module) -> HpmlError:
    where = f"layer {name}" if name else "the network"
    description = str(module).split("\n", maxsplit=1)[0].rstrip("(")
    return HpmlError(f"{where} is {description}: {SUPPORTED}")


def check_quantizable(cell: Cell, model: nn.Module, data: datasets.Data) -> None:
    """Check the cell's model and data set, before training.

    Raises:
        HpmlError: an unsupported layer, no test set, targets that are not classes, or too many
            images for memory.
    """
    chain(model)
    name, test = cell.workload.data, data.test
    if test is None or not datasets.length(test):
        raise HpmlError(
            f"workload.data={name} has no test images, which quantization needs"
        )
    image, target = datasets.first_batch(test, 1)
    if (
        not isinstance(image, Tensor)
        or not isinstance(target, Tensor)
        or target.dtype != torch.int64
    ):
        raise HpmlError(
            f"workload.data={name} has targets that are not class numbers, which quantization needs"
        )

    image_bytes = image.numel() * image.element_size()
    calibration = cell.quantize.calibration if cell.quantize else 0
    for part, number, limit_bytes, remedy in (
        ("test", datasets.length(test), TEST_BYTES, "set data.limit="),
        ("calibration", calibration, CALIBRATION_BYTES, "reduce quantize.calibration="),
    ):
        if number * image_bytes > limit_bytes:
            raise HpmlError(
                f"{number} {part} images of {image_bytes:,} bytes need "
                f"{number * image_bytes / 1e9:.3g} GB of memory "
                f"(limit {limit_bytes / 1e9:.3g} GB): "
                f"{remedy}"
            )


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
        raise HpmlError(
            f"{name}{channel} are 0 up to their bound, so their scale would be 0: train longer, "
            "change workload.lr=, or increase quantize.percentile="
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
        return (
            self.integers * per_output_channel(self.scales, self.integers.ndim)
        ).float()


def per_output_channel(scale: Tensor, dimensions: int) -> Tensor:
    """Reshape scales to multiply weights, whose first dimension is the output channel."""
    return scale.reshape(-1, *[1] * (dimensions - 1))


def quantize_weights(name: str, layer: Weighted, scheme: Scheme) -> Weights:
    """Quantize a layer's weights to int8.

    Raises:
        HpmlError: they contain NaN or infinity, or a scale would be 0.
    """
    title = f"the weights of {name}"
    weight = layer.weight.detach()
    channels = len(weight) if scheme.per_channel else 1
    rows = weight.reshape(channels, -1)
    scale = scales(title, statistics(title, rows, scheme.percentile), scheme.bound)
    integers = nearest(weight, per_output_channel(scale, weight.ndim))
    return Weights(to_int8(title, integers), scale, count_clipped(integers))


def dequantize(stage: LayerStage, weights: Weights) -> LayerStage:
    """Return the stage in fp32 with the values of the integer weights."""
    layer = copy.deepcopy(stage.layer)
    layer.weight = nn.Parameter(weights.values, requires_grad=False)
    return stage._replace(layer=layer)


INPUT = "input"


class ActivationProfile(NamedTuple):
    """The spreads, weights first, and by name the statistics of the input and of layer outputs."""

    spreads: tuple[Spread, ...]
    activations: dict[str, Statistics]


@torch.no_grad()
def profile(
    network: Chain, images: Sequence[Tensor], percentile: float
) -> ActivationProfile:
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
    steps = {INPUT: network.enter} | {
        stage.name: stage.forward for stage in network.stages
    }
    for name, forward in steps.items():
        batches = [forward(batch) for batch in batches]
        values = torch.cat([batch.reshape(-1) for batch in batches]).reshape(1, -1)
        activations[name] = statistics(describe_outputs(name), values, percentile)
        spreads.append(_spread(name, SpreadOf.ACTIVATIONS, values, activations[name]))
    return ActivationProfile(tuple(spreads), activations)


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
