"""A network in integers: int8 in, int32 accumulators, int8 out, layer by layer."""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.quantization import Layer
from hpml_jobs.worker.quantization.layers import (
    INPUT,
    INT8_MIN,
    INT32_MAX,
    Chain,
    LayerStage,
    Weights,
    apply,
    count_clipped,
    describe_outputs,
    nearest,
    to_int8,
    to_int32,
)


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
    rows = padded.unfold(2, kernel_y, stride_y)
    # n, c, height, width, kernel_y, kernel_x
    windows = rows.unfold(3, kernel_x, stride_x)
    by_kernel = windows.permute(1, 4, 5, 0, 2, 3)
    return by_kernel.flatten(0, 2)


@dataclass
class Counters:
    """Range of a layer's accumulators, and how many of its outputs were clipped."""

    least: int = INT32_MAX
    most: int = -INT32_MAX
    clipped: int = 0
    outputs: int = 0

    def add(self, accumulators: Tensor, outputs: Tensor) -> None:
        """Add a batch; `outputs` are rounded but not clipped."""
        least, most = torch.aminmax(accumulators)
        self.least = min(self.least, int(least))
        self.most = max(self.most, int(most))
        self.clipped += count_clipped(outputs)
        self.outputs += outputs.numel()


class IntegerLayer:
    """A layer in integers, with the ReLU, pooling and flattening after it.

    output = clip(round(accumulator x s_x s_w / s_y)), with the scales s of input, weights and
    output; the factor is a float64, everything else is an integer. ReLU and pooling work on the
    accumulators: scaling keeps their order, so the result is the same with fewer roundings.

    Raises:
        HpmlError: the bias or the largest possible accumulator does not fit into 32 bits.
    """

    def __init__(
        self,
        stage: LayerStage,
        weights: Weights,
        input_scale: Tensor,
        output_scale: Tensor,
    ) -> None:
        self.name, self.layer, self.then = stage.name, stage.layer, stage.then
        self.weights, self.input_scale, self.output_scale = (
            weights,
            input_scale,
            output_scale,
        )
        product_scales = input_scale * weights.scales
        self.bias: Tensor | None = None
        if self.layer.bias is not None:  # in units of input scale times weight scale
            integers = nearest(self.layer.bias, product_scales)
            self.bias = to_int32(f"the integers of the bias of {self.name}", integers)
        self.multiplier = product_scales / output_scale
        self.counters: Counters | None = Counters()
        self._check_accumulators()

    def _check_accumulators(self) -> None:
        largest = self.weights.integers.flatten(1).long().abs().sum(1) * -INT8_MIN
        if self.bias is not None:
            largest = largest + self.bias.long().abs()
        if int(largest.max()) > INT32_MAX:
            raise HpmlError(
                f"the accumulators of {self.name} could reach {int(largest.max()):,}, which does "
                "not fit into 32 bits"
            )

    def accumulate(self, values: Tensor) -> Tensor:
        """Return the sums of products plus bias: int8 in, int32 out, shape as the layer's output.

        Raises:
            HpmlError: the input is not int8, or does not have the layer's number of dimensions.
        """
        if values.dtype is not torch.int8:
            raise HpmlError(f"the input of {self.name} is {values.dtype}, not int8")
        if values.ndim != self.layer.weight.ndim:
            raise HpmlError(
                f"the input of {self.name} has {values.ndim} dimensions, but "
                f"{type(self.layer).__name__} needs batches with {self.layer.weight.ndim}: add a "
                "Flatten before it"
            )
        weights = self.weights.integers
        if isinstance(self.layer, nn.Conv2d):
            sums = convolve(values, weights, self.layer)
        else:
            sums = multiply(values, weights.t())
        return sums if self.bias is None else sums + _per_channel(self.bias, sums.ndim)

    def __call__(self, values: Tensor) -> Tensor:
        """Return the input of the next layer, int8."""
        accumulators = result = self.accumulate(values)
        multiplier = _per_channel(self.multiplier, accumulators.ndim)
        for module in self.then:
            if isinstance(module, nn.Flatten):  # each scale goes where its channel goes
                multiplier = module(multiplier.expand(1, *result.shape[1:]))
            result = apply((module,), result)
        outputs = (result.double() * multiplier).round()
        if self.counters:
            self.counters.add(accumulators, outputs)
        return to_int8(describe_outputs(self.name), outputs)

    def describe(self) -> Layer:
        """Return its scales, and the counters while it counted."""
        counters, bias = self.counters or Counters(), self.bias
        return Layer(
            name=self.name,
            input_scale=float(self.input_scale),
            weight_scales=tuple(self.weights.scales.tolist()),
            output_scale=float(self.output_scale),
            weights_clipped=self.weights.clipped,
            weights=self.weights.integers.numel(),
            accumulator_least=counters.least,
            accumulator_most=counters.most,
            clipped=counters.clipped,
            outputs=counters.outputs,
            bias_least=None if bias is None else int(bias.min()),
            bias_most=None if bias is None else int(bias.max()),
        )


def _per_channel(values: Tensor, dimensions: int) -> Tensor:
    """Reshape one value, or one per channel, to broadcast over outputs (n, channels, …)."""
    return values.reshape(1, -1, *[1] * (dimensions - 2))


class IntegerNetwork:
    """All layers in integers: fp32 images in, int8 outputs of the last layer out.

    `weights` are by layer name; `scales` of the activations are by layer name and `INPUT`.
    """

    def __init__(
        self, network: Chain, weights: dict[str, Weights], scales: dict[str, Tensor]
    ) -> None:
        self.enter = network.enter
        self.input_scale = scale = scales[INPUT]
        self.layers: list[IntegerLayer] = []
        for stage in network.stages:
            output_scale = scales[stage.name]
            self.layers.append(
                IntegerLayer(stage, weights[stage.name], scale, output_scale)
            )
            scale = output_scale

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """Return int8 outputs for fp32 images (n, …)."""
        values = to_int8(
            "the input's integers", nearest(self.enter(images), self.input_scale)
        )
        for layer in self.layers:
            values = layer(values)
        return values

    def finish(self) -> tuple[Layer, ...]:
        """Return the description of every layer, and stop counting, which costs time."""
        descriptions = tuple(layer.describe() for layer in self.layers)
        for layer in self.layers:
            layer.counters = None
        return descriptions
