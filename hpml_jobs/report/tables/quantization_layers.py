"""Full tables behind quantization: scales of every layer, spreads of weights and activations."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from hpml_jobs.core.quantization import Layer, Spread, Step
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.table import Table
from hpml_jobs.report.tables.builder import Columns, TableText, column, item_table
from hpml_jobs.report.tables.quantization import Result, Runs, quantized, results
from hpml_jobs.report.text.numbers import count, percent, significant

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


class OfLayer(NamedTuple):
    """One layer of one network in one scheme."""

    result: Result
    layer: Layer


def layers(group: ConditionGroup) -> Table | None:
    """Return scales, clipped shares and largest sums by layer; None without integers."""
    rows = [layer for runs in quantized([group]) for layer in _layers(runs)]
    if not rows:
        return None
    text = TableText("quantization-layers", "Quantization by layer", "", (LAYERS,), on_screen=False)
    return item_table([group], text, ((_layer_name(item), item) for item in rows), _LAYER_HEADS)


def _layers(runs: Runs) -> Iterator[OfLayer]:
    for result in results(runs):
        step = result.steps[0]
        layers = step.layers if isinstance(step, Step) else ()
        yield from (OfLayer(result, layer) for layer in layers)


def _layer_name(item: OfLayer) -> str:
    return f"{item.result.runs.name} {item.layer.name}"


def _weight_scales(item: OfLayer) -> str:
    """Return the scale, or the least and the greatest of the channels' scales."""
    ends = (min(item.layer.weight_scales), max(item.layer.weight_scales))
    return "..".join(dict.fromkeys(map(_scale, ends)))


def _scale(value: float) -> str:
    return significant(value, 3)


_LAYER_HEADS: tuple[Columns[OfLayer], ...] = (
    Columns(
        "",
        (
            column("network", "", lambda item: item.result.runs.name),
            column("layer", "", lambda item: item.layer.name),
        ),
    ),
    Columns(
        "scale",
        (
            column("bound", "by", lambda item: item.result.bound),
            column("scales", "for each", lambda item: item.result.scales),
        ),
        words=True,
    ),
    Columns(
        "scales",
        (
            column("input_scale", "input", lambda item: item.layer.input_scale, _scale),
            column("", "weights", _weight_scales),
            column("output_scale", "output", lambda item: item.layer.output_scale, _scale),
        ),
    ),
    Columns(
        "clipped, %",
        (
            column(
                "weights_clipped",
                "weights",
                lambda item: item.layer.weights_clipped / item.layer.weights,
                percent,
            ),
            column(
                "outputs_clipped",
                "outputs",
                lambda item: item.layer.clipped / item.layer.outputs,
                percent,
            ),
        ),
    ),
    Columns(
        "sums",
        (
            column("accumulator_least", "least", lambda item: item.layer.accumulator_least, count),
            column("accumulator_most", "most", lambda item: item.layer.accumulator_most, count),
        ),
    ),
    Columns(
        "",
        (
            column("weight_scale_least", "", lambda item: min(item.layer.weight_scales)),
            column("weight_scale_most", "", lambda item: max(item.layer.weight_scales)),
            column("bias_least", "", lambda item: item.layer.bias_least),
            column("bias_most", "", lambda item: item.layer.bias_most),
        ),
    ),
)


class OfTensor(NamedTuple):
    """The distribution of the values of one tensor of a network."""

    network: str
    spread: Spread


def spreads(group: ConditionGroup) -> Table | None:
    """Return the ranges of weights and activations; None if nothing was quantized."""
    rows = [
        OfTensor(runs.name, spread) for runs in quantized([group]) for spread in runs.first.spreads
    ]
    if not rows:
        return None
    text = TableText(
        "spreads", "Distributions of weights and activations", "", (SPREADS,), on_screen=False
    )
    return item_table([group], text, ((_tensor_name(item), item) for item in rows), _SPREAD_HEADS)


def _tensor_name(tensor: OfTensor) -> str:
    return f"{tensor.network} {tensor.spread.layer} {tensor.spread.what}"


def _sigmas(number: int) -> Callable[[OfTensor], float]:
    return lambda item: item.spread.mean + number * item.spread.sigma


_SPREAD_HEADS: tuple[Columns[OfTensor], ...] = (
    Columns(
        "",
        (
            column("network", "", lambda tensor: tensor.network),
            column("layer", "", lambda tensor: tensor.spread.layer),
            column("what", "", lambda tensor: tensor.spread.what),
        ),
    ),
    Columns("values", (column("values", "", lambda tensor: tensor.spread.values, count),)),
    Columns(
        "range",
        (
            column("least", "least", lambda tensor: tensor.spread.least, _scale),
            column("most", "most", lambda tensor: tensor.spread.most, _scale),
        ),
    ),
    Columns(
        "mean -/+ 3 sigma",
        (
            column("sigma_low", "low", _sigmas(-3), _scale),
            column("sigma_high", "high", _sigmas(3), _scale),
        ),
    ),
    Columns(
        "percentile", (column("percentile", "", lambda tensor: tensor.spread.percentile, _scale),)
    ),
    Columns(
        "",
        (
            column("mean", "", lambda tensor: tensor.spread.mean),
            column("sigma", "", lambda tensor: tensor.spread.sigma),
        ),
    ),
)
