"""Post-training quantization: what is asked for, and what it left (raw values only).

A scale is the real value of one step of an integer: real = scale x integer. Integers of weights and
activations are int8, -128 to 127, around zero; biases and accumulators are int32.
"""

from enum import StrEnum

from hpml_jobs.core.value import Value
from hpml_jobs.errors import UsageError

BINS = 64
"""Bins of a histogram, equally wide, from the least value to the largest."""

QUANTIZABLE = ("lenet", "lenet_bias")
"""Our own models that quantization understands; another model is the user's own code."""


class Quantize(Value, frozen=True, kw_only=True):
    """What is asked for: `calibration` training images profile the activations.

    `percentile` of the absolute values is what the percentile bound covers; `per_channel` adds a
    scale for every output channel of the weights beside the scale per layer.
    """

    calibration: int
    percentile: float = 99.9
    per_channel: bool = False

    def __post_init__(self) -> None:
        """Refuse what gives no scale."""
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
    """What a scale covers: bound / 127 is the scale."""

    RANGE = "range"  # the largest absolute value
    SIGMA = "sigma"  # mean -/+ 3 standard deviations, the end that is further from zero
    PERCENTILE = "percentile"  # the asked-for percentile of the absolute values


class SpreadOf(StrEnum):
    """Whose values a histogram shows."""

    WEIGHTS = "weights"
    ACTIVATIONS = "activations"


class QuantizedParts(StrEnum):
    """Which parts of a network a step quantized."""

    NONE = "fp32"
    WEIGHTS = "weights"  # int8 weights, the rest in fp32
    ALL = "integers"  # int8 weights and activations, int32 bias


class Implementation(StrEnum):
    """Which implementation of a network a latency is of."""

    FP32 = "fp32"
    OURS = "ours int8"
    TORCH = "torch int8"  # the converted network as inductor compiles it: oneDNN's int8 kernels


class Spread(Value, frozen=True, kw_only=True):
    """How the values of one tensor are spread: a layer's weights, the input, a layer's outputs.

    Outputs are those that the next layer gets: after ReLU and pooling. `counts` are of `BINS` bins
    from `least` to `most`; `percentile` is the asked-for percentile of the absolute values.
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
    """One layer in integers: its scales, and what the test images did to them.

    `weight_scales` is one, or one per output channel. Accumulators are int32, bias included.
    `clipped` outputs are those beyond -128…127 before they were clipped; `outputs` all of them.
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
    """One line of the lab's table: what was quantized, and the accuracy on the test set.

    `bytes` are those of the parameters as they are stored, scales included.
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
        """Share of the test images that are right, 0 to 1."""
        return self.correct / self.samples


class Reference(Value, frozen=True, kw_only=True):
    """torch's own post-training quantization of the same network, same calibration images."""

    how: str  # the path and its version
    correct: int
    samples: int
    bytes: int

    @property
    def accuracy(self) -> float:
        """Share of the test images that are right, 0 to 1."""
        return self.correct / self.samples


class Latency(Value, frozen=True, kw_only=True):
    """How long a batch takes on the CPU, one thread: median and percentiles of `runs`."""

    what: Implementation
    batch: int
    runs: int
    median_s: float
    p10_s: float
    p90_s: float


class Quantized(Value, frozen=True, kw_only=True):
    """What quantization of a trained network left.

    `bias`: whether its last layer has one. `missing` says what could not be found out, and why.
    """

    calibration: int
    bias: bool
    spreads: tuple[Spread, ...]
    steps: tuple[Step, ...]
    latencies: tuple[Latency, ...] = ()
    reference: Reference | None = None
    missing: tuple[str, ...] = ()
