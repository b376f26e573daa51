"""Hand-made results of quantization."""

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.quantization import (
    BINS,
    Bound,
    Layer,
    QuantizationStep,
    Quantized,
    Spread,
    TorchReference,
)
from hpml_jobs.core.quantize_settings import Quantize, QuantizeSettings


def part(**settings: object) -> Quantize | None:
    """The part of a cell with these settings."""
    return QuantizeSettings(**settings).for_cell


def quantized_result(of: Cell) -> Quantized:
    """Of 10,000 test images fp32 has 6,500 right; every step after it loses ten more.

    Two layers, the second with a bias for lenet_bias.
    """
    bias = of.workload.model == "lenet_bias"
    schemes = [
        (what, bound, per_channel)
        for what in ("weights", "integers")
        for bound in Bound
        for per_channel in ((False, True) if of.quantize.per_channel else (False,))
    ]
    steps = [
        QuantizationStep(
            what="fp32", correct=6_500 + of.seed, samples=10_000, bytes=248_000
        )
    ]
    for number, (what, bound, per_channel) in enumerate(schemes, start=1):
        layers = (
            quantized_layer("conv1", bias=False),
            quantized_layer("fc3", bias=bias),
        )
        steps.append(
            QuantizationStep(
                what=what,
                bound=bound,
                per_channel=per_channel,
                correct=6_500 - 10 * number,
                samples=10_000,
                bytes=62_020,
                layers=layers if what == "integers" else (),
            )
        )
    return Quantized(
        calibration=1_000,
        bias=bias,
        spreads=tuple(
            a_spread(layer, what)
            for what, layers in (
                ("weights", ("conv1", "fc3")),
                ("activations", ("input", "conv1", "fc3")),
            )
            for layer in layers
        ),
        steps=tuple(steps),
        reference=TorchReference(
            how="pt2e 0.18", correct=6_480, samples=10_000, bytes=63_000
        ),
    )


def quantized_layer(name: str, *, bias: bool) -> Layer:
    return Layer(
        name=name,
        input_scale=0.02,
        weight_scales=(0.004, 0.008),
        output_scale=0.05,
        weights_clipped=3,
        weights=600,
        accumulator_least=-12_000,
        accumulator_most=15_000,
        clipped=20,
        outputs=10_000,
        bias_least=-40 if bias else None,
        bias_most=50 if bias else None,
    )


def a_spread(layer: str, what: str) -> Spread:
    """A triangle of values from -1 to 1; activations from 0."""
    least = -1.0 if what == "weights" else 0.0
    return Spread(
        layer=layer,
        what=what,
        values=1_056,
        least=least,
        most=1.0,
        mean=0.1,
        sigma=0.2,
        percentile=0.9,
        counts=tuple(min(n, BINS - 1 - n) for n in range(BINS)),
    )
