"""Post-training quantization: its settings and its results (raw values only).

A scale is the real value of an integer step: real = scale x integer. Weights and activations are
int8, -128 to 127, with zero point 0; biases and accumulators are int32.
"""

from enum import StrEnum

from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.value import Value

BINS = 64
"""Number of equally wide bins of a histogram, from the smallest value to the largest."""

QUANTIZABLE = ("lenet", "lenet_bias")
"""Built-in models that can be quantized; any other model is the user's code."""


class Quantize(Value, frozen=True, kw_only=True):
    """Settings of quantization: `calibration` is the number of images that profile activations.

    `percentile` is the share of absolute values, in percent, that the percentile bound covers.
    `per_channel` adds steps with one weight scale per output channel instead of one per layer.
    """

    calibration: int
    percentile: float = 99.9
    per_channel: bool = False

    def __post_init__(self) -> None:
        """Refuse settings that give no scale."""
        if self.calibration < 1:
            raise UsageError(
                f"quantize.calibration={self.calibration}: activations are profiled on 1 training "
                "image or more"
            )
        if not 0 < self.percentile <= 100:
            raise UsageError(
                f"quantize.percentile={self.percentile:g}: must be above 0 and at most 100"
            )


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


class Implementation(StrEnum):
    """The implementation of a network whose latency was measured."""

    FP32 = "fp32"
    OURS = "ours int8"
    TORCH = "torch int8"  # the converted network as inductor compiles it: oneDNN's int8 kernels


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


class Step(Value, frozen=True, kw_only=True):
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


class Reference(Value, frozen=True, kw_only=True):
    """torch's post-training quantization of the same network with the same calibration images."""

    how: str  # the path and its version
    correct: int
    samples: int
    bytes: int

    @property
    def accuracy(self) -> float:
        """Return the share of correctly classified test images, 0 to 1."""
        return self.correct / self.samples


class Latency(Value, frozen=True, kw_only=True):
    """The latency of a batch on one CPU thread: median and percentiles of `runs`."""

    what: Implementation
    batch: int
    runs: int
    median_s: float
    p10_s: float
    p90_s: float


class Quantized(Value, frozen=True, kw_only=True):
    """The results of quantizing a trained network.

    `bias`: whether its last layer has one. `missing` lists results that failed, with the reason.
    """

    calibration: int
    bias: bool
    spreads: tuple[Spread, ...]
    steps: tuple[Step, ...]
    latencies: tuple[Latency, ...] = ()
    reference: Reference | None = None
    missing: tuple[str, ...] = ()
