"""Full tables behind quantization: scales and spreads by layer, seconds of a batch on the CPU."""

from collections.abc import Iterator
from statistics import median
from typing import Annotated, NamedTuple, Self

from hpml_jobs.core.quantization import Layer, Step
from hpml_jobs.report.frame.builder import Number, Shown, TableText, columns_of, filled, item_table
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import count, milliseconds, percent, ratio, three_digits
from hpml_jobs.report.frame.table import Table
from hpml_jobs.report.quantization.table import Result, Runs, quantized, results

LAYERS = (
    "Integer computation over the whole test set, first run. real = scale x integer. Clipped: "
    "values beyond -128..127, % of a layer's weights and of its outputs. Sums: least and most of "
    "the int32 accumulators, bias included."
)
SPREADS = (
    "Trained weights, and the input and every layer's output (as the next layer receives it) over"
    " the profiled images, first run. Histograms: weights.png, activations.png. Percentile: of "
    "the absolute values."
)


class LayerLine(NamedTuple):
    """One layer of one network in one scheme; shares of 1."""

    network: str
    layer: str
    bound: Annotated[str, Shown("by", str, "scale", words=True)]
    scales: Annotated[str, Shown("for each", str, "scale", words=True)]
    input_scale: Annotated[float, Shown("input", three_digits, "scales")]
    weight_scales: Annotated[str, Shown("weights", str, "scales", on_page_only=True)]
    output_scale: Annotated[Number, Shown("output", three_digits, "scales")]
    weights_clipped: Annotated[float, Shown("weights", percent, "clipped, %")]
    outputs_clipped: Annotated[float, Shown("outputs", percent, "clipped, %")]
    accumulator_least: Annotated[int, Shown("least", count, "sums")]
    accumulator_most: Annotated[int, Shown("most", count, "sums")]
    weight_scale_least: float
    weight_scale_most: float
    bias_least: Number
    bias_most: Number

    @classmethod
    def of(cls, network: str, result: Result, layer: Layer) -> Self:
        """Return the line of a layer."""
        ends = min(layer.weight_scales), max(layer.weight_scales)
        return filled(
            cls,
            layer,
            network=network,
            layer=layer.name,
            bound=result.bound,
            scales=result.scales,
            weight_scales="..".join(dict.fromkeys(map(three_digits, ends))),
            weights_clipped=layer.weights_clipped / layer.weights,
            outputs_clipped=layer.clipped / layer.outputs,
            weight_scale_least=ends[0],
            weight_scale_most=ends[1],
        )


class SpreadLine(NamedTuple):
    """The distribution of the values of one tensor of a network."""

    network: str
    layer: str
    what: str
    values: Annotated[int, Shown("values", count)]
    least: Annotated[float, Shown("least", three_digits, "range")]
    most: Annotated[float, Shown("most", three_digits, "range")]
    sigma_low: Annotated[float, Shown("low", three_digits, "mean -/+ 3 sigma")]
    sigma_high: Annotated[float, Shown("high", three_digits, "mean -/+ 3 sigma")]
    percentile: Annotated[float, Shown("percentile", three_digits)]
    mean: float
    sigma: float


def layers(group: ConditionGroup) -> Table | None:
    """Return scales, clipped shares and largest sums by layer; None without integers."""
    lines = [
        LayerLine.of(runs.name, result, layer)
        for runs in quantized([group])
        for result in results(runs)
        if isinstance(step := result.steps[0], Step)
        for layer in step.layers
    ]
    if not lines:
        return None
    text = TableText("quantization-layers", "Quantization by layer", "", (LAYERS,), on_screen=False)
    items = [(f"{line.network} {line.layer}", line) for line in lines]
    return item_table([group], text, items, columns_of(LayerLine))


def spreads(group: ConditionGroup) -> Table | None:
    """Return the ranges of weights and activations; None if nothing was quantized."""
    lines = [
        filled(
            SpreadLine,
            spread,
            network=runs.name,
            sigma_low=spread.mean - 3 * spread.sigma,
            sigma_high=spread.mean + 3 * spread.sigma,
        )
        for runs in quantized([group])
        for spread in runs.first.spreads
    ]
    if not lines:
        return None
    title = "Distributions of weights and activations"
    text = TableText("spreads", title, "", (SPREADS,), on_screen=False)
    items = [(f"{line.network} {line.layer} {line.what}", line) for line in lines]
    return item_table([group], text, items, columns_of(SpreadLine))


LATENCY = (
    "Milliseconds of a batch on the CPU with one thread: median, 10th and 90th percentile; "
    "medians over runs. Ratio: to fp32 at the same batch; below 1 is faster."
)


class LatencyLine(NamedTuple):
    """One way of computing a batch of one size: seconds, medians over runs."""

    network: str
    what: str
    batch: Annotated[int, Shown("batch", count)]
    median_s: Annotated[float, Shown("median", milliseconds, "ms per batch")]
    p10_s: Annotated[float, Shown("p10", milliseconds, "ms per batch")]
    p90_s: Annotated[float, Shown("p90", milliseconds, "ms per batch")]
    of_fp32: Annotated[Number, Shown("ratio to fp32", ratio)]


def latency(group: ConditionGroup) -> Table | None:
    """Return the time of a batch with each implementation; None if nothing was timed."""
    lines = [line for runs in quantized([group]) for line in _lines(runs)]
    if not lines:
        return None
    text = TableText("latency", "Latency on the CPU", "", (LATENCY,))
    items = [(f"{line.network} {line.what}", line) for line in lines]
    return item_table([group], text, items, columns_of(LatencyLine))


def _lines(runs: Runs) -> Iterator[LatencyLine]:
    timings = [timing for run in runs.quantized for timing in run.latencies]
    for what, batch in dict.fromkeys((timing.what, timing.batch) for timing in timings):
        of_runs = [timing for timing in timings if (timing.what, timing.batch) == (what, batch)]
        fp32_s = [o.median_s for o in timings if (o.what, o.batch) == ("fp32", batch)]
        median_s = median(timing.median_s for timing in of_runs)
        yield LatencyLine(
            network=runs.name,
            what=what,
            batch=batch,
            median_s=median_s,
            p10_s=median(timing.p10_s for timing in of_runs),
            p90_s=median(timing.p90_s for timing in of_runs),
            of_fp32=median_s / median(fp32_s) if fp32_s else None,
        )
