"""A network in integers: int8 in, int32 accumulators, int8 out, layer by layer."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hpml_jobs.core.quantization import Layer
from hpml_jobs.errors import HpmlError
from hpml_jobs.worker.quantization.layers import Chain, Stage, Weighted, through
from hpml_jobs.worker.quantization.products import convolve, multiply
from hpml_jobs.worker.quantization.scales import INT32, LEAST, beyond, int8, int32, nearest
from hpml_jobs.worker.quantization.spreads import INPUT, whose_outputs
from hpml_jobs.worker.quantization.weights import Weights


@dataclass
class Seen:
    """What a layer's accumulators and outputs were so far."""

    least: int = INT32
    most: int = -INT32
    clipped: int = 0
    outputs: int = 0

    def note(self, accumulators: Tensor, outputs: Tensor) -> None:
        """Add a batch; outputs before they are clipped."""
        least, most = torch.aminmax(accumulators)
        self.least = min(self.least, int(least))
        self.most = max(self.most, int(most))
        self.clipped += beyond(outputs)
        self.outputs += outputs.numel()


class IntegerLayer:
    """A layer in integers, and what its outputs go through.

    output = clip(round(accumulator x s_x s_w / s_y)), with the scales of input, weights and output
    and the same bound for all; the factor is a float64, all else is integers. ReLU and pooling are
    done on the accumulators: they keep the order, so it is the same, and fewer are rounded.

    Raises:
        HpmlError: the bias or the largest possible accumulator does not fit into 32 bits.
    """

    def __init__(
        self, stage: Stage, weights: Weights, input_scale: Tensor, output_scale: Tensor
    ) -> None:
        self.name, self.layer, self.then = stage.name, stage.layer, stage.then
        self.weights, self.input_scale, self.output_scale = weights, input_scale, output_scale
        products = input_scale * weights.scales
        self.bias = _bias(stage.name, stage.layer, products)
        self.multiplier = products / output_scale
        self.seen: Seen | None = Seen()
        self._check_fit()

    def _check_fit(self) -> None:
        largest = self.weights.integers.flatten(1).long().abs().sum(1) * -LEAST
        if self.bias is not None:
            largest = largest + self.bias.long().abs()
        if int(largest.max()) > INT32:
            raise HpmlError(
                f"the accumulators of {self.name} could reach {int(largest.max()):,}, which does "
                "not fit into 32 bits"
            )

    def accumulate(self, values: Tensor) -> Tensor:
        """The sums of products, bias included: int8 in, int32 out, shaped as the layer's outputs.

        Raises:
            HpmlError: the input is not int8, or does not have the layer's dimensions.
        """
        if values.dtype is not torch.int8:
            raise HpmlError(f"the input of {self.name} is {values.dtype}, not int8")
        if values.ndim != self.layer.weight.ndim:
            raise HpmlError(
                f"the input of {self.name} has {values.ndim} dimensions, not "
                f"{self.layer.weight.ndim}: {type(self.layer).__name__} takes batches; is a "
                "Flatten missing?"
            )
        weights = self.weights.integers
        if isinstance(self.layer, nn.Conv2d):
            sums = convolve(values, weights, self.layer)
        else:
            sums = multiply(values, weights.t())
        return sums if self.bias is None else sums + _by_channel(self.bias, sums.ndim)

    def __call__(self, values: Tensor) -> Tensor:
        """What the next layer gets, int8."""
        accumulators = handed = self.accumulate(values)
        multiplier = _by_channel(self.multiplier, accumulators.ndim)
        for module in self.then:
            if isinstance(module, nn.Flatten):  # each scale goes where its channel goes
                multiplier = module(multiplier.expand(1, *handed.shape[1:]))
            handed = through((module,), handed)
        outputs = (handed.double() * multiplier).round()
        if self.seen:
            self.seen.note(accumulators, outputs)
        return int8(whose_outputs(self.name), outputs)

    def told(self) -> Layer:
        """Its scales, and what went through it while it was watched."""
        seen, bias = self.seen or Seen(), self.bias
        return Layer(
            name=self.name,
            input_scale=float(self.input_scale),
            weight_scales=tuple(self.weights.scales.tolist()),
            output_scale=float(self.output_scale),
            weights_clipped=self.weights.clipped,
            weights=self.weights.integers.numel(),
            accumulator_least=seen.least,
            accumulator_most=seen.most,
            clipped=seen.clipped,
            outputs=seen.outputs,
            bias_least=None if bias is None else int(bias.min()),
            bias_most=None if bias is None else int(bias.max()),
        )


def _by_channel(values: Tensor, dimensions: int) -> Tensor:
    """One value, or one for each channel, shaped to meet outputs (n, channels, …)."""
    return values.reshape(1, -1, *[1] * (dimensions - 2))


def _bias(name: str, layer: Weighted, products: Tensor) -> Tensor | None:
    """int32, with the product of the scales in front of it."""
    if layer.bias is None:
        return None
    return int32(f"the integers of the bias of {name}", nearest(layer.bias, products))


class IntegerNetwork:
    """All layers in integers: images in fp32 in, int8 outputs of the last layer out.

    Weights are by layer; scales, of activations, are those of the input and by layer.
    """

    def __init__(
        self, network: Chain, weights: dict[str, Weights], scales: dict[str, Tensor]
    ) -> None:
        self.enter = network.enter
        self.input_scale = scale = scales[INPUT]
        self.layers: list[IntegerLayer] = []
        for stage in network.stages:
            output = scales[stage.name]
            self.layers.append(IntegerLayer(stage, weights[stage.name], scale, output))
            scale = output

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """(n, …) in fp32 to int8 outputs."""
        handed = int8("the input's integers", nearest(self.enter(images), self.input_scale))
        for layer in self.layers:
            handed = layer(handed)
        return handed

    def told(self) -> tuple[Layer, ...]:
        """What every layer tells; from here on nothing is counted, so that nothing costs time."""
        found = tuple(layer.told() for layer in self.layers)
        for layer in self.layers:
            layer.seen = None
        return found
