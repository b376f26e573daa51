"""The results of post-training quantization (raw values only).

A scale is the real value of an integer step: real = scale x integer. Weights and activations are
int8, -128 to 127, with zero point 0; biases and accumulators are int32.
"""

from enum import StrEnum

import msgspec

from hpml_jobs.core.record import Record
from hpml_jobs.core.value import Value

BINS = 64
"""Number of equally wide bins of a histogram, from the smallest value to the largest."""


SAME_NETWORK = 0.01
"""The accuracy after training and that of the fp32 network differ by at most this, a share."""


class Bound(StrEnum):
    """The largest absolute value that int8 covers: scale = bound / 127."""

    RANGE = "range"  # the largest absolute value
    SIGMA = "sigma"  # mean -/+ 3 standard deviations, the end further from zero
    PERCENTILE = "percentile"  # the requested percentile of the absolute values


class SpreadOf(StrEnum):
    """The tensors that a histogram shows."""

    WEIGHTS = "weights"
    ACTIVATIONS = "activations"


class QuantizedParts(StrEnum):
    """The parts of a network that a step quantized."""

    NONE = "fp32"
    WEIGHTS = "weights"  # int8 weights, the rest in fp32
    ALL = "integers"  # int8 weights and activations, int32 bias


class Spread(Value, frozen=True, kw_only=True):
    """The distribution of one tensor: the weights of a layer, the input, or a layer's outputs.

    Outputs are taken after ReLU and pooling, as the next layer receives them. `counts` has `BINS`
    bins from `least` to `most`; `percentile` is the requested percentile of the absolute values.
    """

    layer: str  # input, conv1, fc3
    what: SpreadOf
    values: int
    least: float
    most: float
    mean: float
    sigma: float
    percentile: float
    counts: tuple[int, ...]


class Layer(Value, frozen=True, kw_only=True):
    """One layer in integers: its scales, and clipping and accumulators on the test images.

    `weight_scales` has one scale, or one per output channel. Accumulators are int32 and include the
    bias. `clipped` counts the outputs beyond -128…127 before clipping, `outputs` all of them.
    """

    name: str
    input_scale: float
    weight_scales: tuple[float, ...]
    output_scale: float
    weights_clipped: int
    weights: int
    accumulator_least: int
    accumulator_most: int
    clipped: int
    outputs: int
    bias_least: int | None = None  # of the int32 bias, where the layer has one
    bias_most: int | None = None


class QuantizationStep(Value, frozen=True, kw_only=True):
    """One line of the lab's table: the quantized parts, and the accuracy on the test set.

    `bytes` is the size of the stored parameters, scales included.
    """

    what: QuantizedParts
    bound: Bound | None = None
    per_channel: bool = False
    correct: int
    samples: int
    bytes: int
    layers: tuple[Layer, ...] = ()  # of integers

    @property
    def accuracy(self) -> float:
        """Return the share of correctly classified test images, 0 to 1."""
        return self.correct / self.samples


class TorchReference(Value, frozen=True, kw_only=True):
    """torch's post-training quantization of the same network with the same calibration images."""

    how: str  # the path and its version
    correct: int
    samples: int
    bytes: int

    @property
    def accuracy(self) -> float:
        """Return the share of correctly classified test images, 0 to 1."""
        return self.correct / self.samples


class Quantized(Value, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The results of quantizing a trained network.

    `bias`: whether its last layer has one. `missing` lists results that failed, with the reason.
    """

    calibration: int
    bias: bool
    spreads: tuple[Spread, ...]
    steps: tuple[QuantizationStep, ...]
    reference: TorchReference | None = None
    missing: tuple[str, ...] = ()


def quantized_of(record: Record) -> Quantized | None:
    """Return the results in a record; None if nothing was quantized.

    Raises:
        ValueError: they do not have the form of results.
    """
    return (
        None
        if record.quantized is None
        else msgspec.convert(record.quantized, Quantized)
    )


def record_fault(record: Record) -> str | None:
    """Return what is wrong with quantization: not done where configured, or miscounted."""
    try:
        quantized = quantized_of(record)
    except ValueError as fault:
        return f"quantized: {fault}"
    if (quantized is None) != (record.cell.quantize is None):
        return "quantization was configured or done, but not both"
    if quantized is None:
        return None
    if not quantized.steps or quantized.steps[0].what != QuantizedParts.NONE:
        return "quantization begins without the fp32 network"
    tested, trained = quantized.steps[0].accuracy, record.ranks[0].test_accuracy
    if trained is None or abs(tested - trained) > SAME_NETWORK:
        return f"accuracy {tested} was quantized, {trained} was trained: not the same network"
    for step in quantized.steps:
        if (
            step.samples != quantized.steps[0].samples
            or not 0 <= step.correct <= step.samples
        ):
            return f"quantization: {step.correct} of {step.samples} images right in {step.what}"
    return None
