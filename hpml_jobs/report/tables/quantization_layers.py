"""Full tables behind quantization: scales of every layer, spreads of weights and activations."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from hpml_jobs.core.quantization import Layer, Spread
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.table import Table
from hpml_jobs.report.tables.builder import About, Column, Columns, drawn, table
from hpml_jobs.report.tables.quantization import Result, Runs, quantized, results
from hpml_jobs.report.text.numbers import count, percent, significant

LAYERS = (
    "In integers, over the whole test set, of the first run. real = scale x integer. Clipped: "
    "beyond -128..127, % of a layer's weights and of its outputs. Sums: least and most of the "
    "int32 accumulators, bias included."
)
SPREADS = (
    "Of the trained weights, and of the input and every layer's output (as the next layer gets it) "
    "over the images of the profile, of the first run; histograms in weights.png and "
    "activations.png. Percentile: of the absolute values."
)


class OfLayer(NamedTuple):
    """One layer of one network in one scheme."""

    result: Result
    layer: Layer


def layers(group: ConditionGroup) -> Table | None:
    """Scales, what was clipped and how large sums became; None without integers."""
    found = [one for runs in quantized([group]) for one in _layers(runs)]
    if not found:
        return None
    shown = drawn(found, lambda one: f"{one.result.runs.name} {one.layer.name}", _LAYER_HEADS)
    about = About("quantization-layers", "Quantization by layer", "", (LAYERS,), on_screen=False)
    return table(group, about, shown)


def _layers(runs: Runs) -> Iterator[OfLayer]:
    for result in results(runs):
        for layer in getattr(result.steps[0], "layers", ()):
            yield OfLayer(result, layer)


def _of_layer(name: str) -> Callable[[OfLayer], Any]:
    return lambda one: getattr(one.layer, name)


def _weight_scales(one: OfLayer) -> str:
    """One scale, or the least and the most of the channels'."""
    ends = (min(one.layer.weight_scales), max(one.layer.weight_scales))
    return "..".join(dict.fromkeys(map(_scale, ends)))


def _scale(value: float) -> str:
    return significant(value, 3)


_LAYER_HEADS: tuple[Columns[OfLayer], ...] = (
    Columns(
        "",
        (
            Column("network", "", lambda one: one.result.runs.name),
            Column("layer", "", _of_layer("name")),
        ),
    ),
    Columns(
        "scale",
        (
            Column("bound", "by", lambda one: one.result.bound),
            Column("scales", "for each", lambda one: one.result.scales),
        ),
        text=True,
    ),
    Columns(
        "scales",
        (
            Column("input_scale", "input", _of_layer("input_scale"), _scale),
            Column("", "weights", _weight_scales),
            Column("output_scale", "output", _of_layer("output_scale"), _scale),
        ),
    ),
    Columns(
        "clipped, %",
        (
            Column(
                "weights_clipped",
                "weights",
                lambda one: one.layer.weights_clipped / one.layer.weights,
                percent,
            ),
            Column(
                "outputs_clipped",
                "outputs",
                lambda one: one.layer.clipped / one.layer.outputs,
                percent,
            ),
        ),
    ),
    Columns(
        "sums",
        (
            Column("accumulator_least", "least", _of_layer("accumulator_least"), count),
            Column("accumulator_most", "most", _of_layer("accumulator_most"), count),
        ),
    ),
    Columns(
        "",
        (
            Column("weight_scale_least", "", lambda one: min(one.layer.weight_scales)),
            Column("weight_scale_most", "", lambda one: max(one.layer.weight_scales)),
            Column("bias_least", "", _of_layer("bias_least")),
            Column("bias_most", "", _of_layer("bias_most")),
        ),
    ),
)


class OfTensor(NamedTuple):
    """How the values of one tensor of a network are spread."""

    network: str
    spread: Spread


def spreads(group: ConditionGroup) -> Table | None:
    """Ranges of weights and activations; None where nothing was quantized."""
    found = [
        OfTensor(runs.name, spread) for runs in quantized([group]) for spread in runs.first.spreads
    ]
    if not found:
        return None

    def name(one: OfTensor) -> str:
        return f"{one.network} {one.spread.layer} {one.spread.what}"

    shown = drawn(found, name, _SPREAD_HEADS)
    about = About("spreads", "Spreads of weights and activations", "", (SPREADS,), on_screen=False)
    return table(group, about, shown)


def _of_spread(name: str) -> Callable[[OfTensor], Any]:
    return lambda one: getattr(one.spread, name)


def _sigmas(number: int) -> Callable[[OfTensor], float]:
    return lambda one: one.spread.mean + number * one.spread.sigma


_SPREAD_HEADS: tuple[Columns[OfTensor], ...] = (
    Columns(
        "",
        (
            Column("network", "", lambda one: one.network),
            Column("layer", "", _of_spread("layer")),
            Column("what", "", _of_spread("what")),
        ),
    ),
    Columns("values", (Column("values", "", _of_spread("values"), count),)),
    Columns(
        "range",
        (
            Column("least", "least", _of_spread("least"), _scale),
            Column("most", "most", _of_spread("most"), _scale),
        ),
    ),
    Columns(
        "mean -/+ 3 sigma",
        (
            Column("sigma_low", "low", _sigmas(-3), _scale),
            Column("sigma_high", "high", _sigmas(3), _scale),
        ),
    ),
    Columns("percentile", (Column("percentile", "", _of_spread("percentile"), _scale),)),
    Columns(
        "",
        (Column("mean", "", _of_spread("mean")), Column("sigma", "", _of_spread("sigma"))),
    ),
)
