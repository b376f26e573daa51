"""The table of quantization (lab part B) step by step, and the sheet of distributions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec

from hpml_jobs.core.quantization import (
    BINS,
    Bound,
    QuantizationStep,
    Quantized,
    QuantizedParts,
    Spread,
    TorchReference,
    quantized_of,
)
from hpml_jobs.core.record import Record
from hpml_jobs.core.value import by_key
from hpml_jobs.report.frame import learning
from hpml_jobs.report.frame.learning import Mean
from hpml_jobs.report.frame.numbers import accuracy, count, three_digits
from hpml_jobs.report.frame.picture import (
    BLUE,
    IDEAL,
    Axes,
    Panel,
    Picture,
    logarithmic,
    named,
    panels,
)
from hpml_jobs.report.frame.table import (
    Column,
    Sheet,
    Table,
    TableText,
    columns_of,
    item_table,
    line_from,
    row_name,
)
from hpml_jobs.results.conditions import WORKLOAD, in_words
from hpml_jobs.results.groups import ConditionGroup

QUANTIZATION = (
    "int8: integers in -128..127, times a scale = bound / 127. Bound: the range, 3 standard "
    "deviations (3-sigma), or a percentile of the absolute values; of activations on {images} "
    "training images. int8 weights: computed in fp32; with activations: in integers, with int32 "
    "sums. Drop: percentage points of accuracy below fp32. ±: over seeds."
)

TORCHS = "torch's own int8"

BOUNDS = {Bound.RANGE: "range", Bound.SIGMA: "3-sigma", Bound.PERCENTILE: "percentile"}
"""What a scale covers, in words."""


class Network(NamedTuple):
    """The records of one place that were trained and quantized alike, as `how` says."""

    workload: str
    place: str
    how: dict[str, float]
    records: list[Record]

    @property
    def quantized(self) -> list[Quantized]:
        """The results of its runs."""
        return [*filter(None, map(quantized_of, self.records))]

    @property
    def first(self) -> Quantized:
        """Those of the first run, for values without a meaningful mean."""
        return self.quantized[0]

    def over_seeds(self, values: Iterable[float]) -> Mean | None:
        """Return the mean over seeds of a value of each run."""
        seeds = [record.cell.seed for record in self.records]
        return Mean.of(zip(seeds, values, strict=True))


def networks_of(groups: Sequence[ConditionGroup]) -> dict[str, Network]:
    """Return all quantized networks by name, those with a bias last.

    Where the names of networks meet, their places and what differs in the way tell them apart.
    """
    networks: list[Network] = []
    for group in groups:
        for row in group.timed:
            place = named(group, row_name(group, row), ", ")
            records = [record for record in row.records if record.quantized]
            ways = by_key((tuple(_how(r).values()), r) for r in records)
            workload = dict(group.requested)[WORKLOAD]
            for way in sorted(ways):
                how = _how(ways[way][0])
                networks.append(Network(workload, place, how, ways[way]))
    ordered = sorted(networks, key=lambda network: network.first.bias)
    return {_name(network, networks): network for network in ordered}


def _how(record: Record) -> dict[str, float]:
    """Return the requested quantization settings, and the epochs that the network was trained."""
    settings = msgspec.to_builtins(record.cell.quantize)
    return {**settings, "epochs": len(record.trained)}


def _name(network: Network, networks: Iterable[Network]) -> str:
    """Return `lenet_cifar10`, or with what sets it apart `lenet_cifar10, calibration 100`."""
    same = [other for other in networks if other.workload == network.workload]
    alike = [other for other in same if other.how == network.how]
    parts = [network.workload]
    if len(alike) > 1:
        parts.append(network.place.removeprefix(f"{network.workload}, "))
    for key, value in network.how.items():
        if len({other.how.get(key) for other in same}) > 1:
            parts.append(f"{key} {in_words(value)}")
    return ", ".join(parts)


def _points(share: float) -> str:
    return accuracy(share) if round(share, 4) else "0.00"


class QuantizationLine(NamedTuple):
    """What was quantized and the accuracy that is left; accuracies are of 1."""

    network: str
    quantized: Annotated[str, Column("quantized", words=True)]
    bound: Annotated[str | None, Column("scale by", words=True)]
    scales: Annotated[str | None, Column("for each", words=True)]
    accuracy: Annotated[Mean | None, learning.shown("accuracy, %", accuracy)]
    drop: Annotated[Mean | None, learning.shown("drop", _points)]
    bytes: Annotated[int, Column("bytes", count)]
    of_fp32: float
    runs: int
    seeds: int


def _lines(name: str, network: Network) -> Iterator[QuantizationLine]:
    """Yield the steps of a network in the order of the lab, then torch's own."""
    runs = network.quantized
    for step in network.first.steps:
        scheme = _scheme(step)
        steps = [s for run in runs for s in run.steps if _scheme(s) == scheme]
        if len(steps) != len(runs):
            continue
        bound = scales = None
        if step.bound is not None:
            bound = BOUNDS[step.bound]
            scales = "channel" if step.per_channel else "layer"
        what = _WORDS.get(step.what, step.what)
        if step.what == QuantizedParts.ALL and network.first.bias:
            what += ", int32 bias"
        line = _line(name, network, what, steps)
        yield line._replace(bound=bound, scales=scales)
    references = [run.reference for run in runs if run.reference]
    if len(references) == len(runs):
        yield _line(name, network, TORCHS, references)


def _line(
    name: str,
    network: Network,
    what: str,
    steps: Sequence[QuantizationStep | TorchReference],
) -> QuantizationLine:
    before = [run.steps[0] for run in network.quantized]
    pairs = zip(before, steps, strict=True)
    lost = network.over_seeds(fp32.accuracy - step.accuracy for fp32, step in pairs)
    return QuantizationLine(
        network=name,
        quantized=what,
        bound=None,
        scales=None,
        accuracy=network.over_seeds(step.accuracy for step in steps),
        drop=None if what == "fp32" else lost,
        bytes=steps[0].bytes,
        of_fp32=steps[0].bytes / before[0].bytes,
        runs=len(steps),
        seeds=len({record.cell.seed for record in network.records}),
    )


def _scheme(step: QuantizationStep) -> tuple[str, Bound | None, bool]:
    return step.what, step.bound, step.per_channel


_WORDS: dict[str, str] = {
    QuantizedParts.WEIGHTS: "int8 weights",
    QuantizedParts.ALL: "int8 weights + activations",
}


def quantization(groups: Sequence[ConditionGroup]) -> Table | None:
    """Return the table of all networks of the study; None if none was quantized."""
    networks = networks_of(groups)
    if not networks:
        return None
    runs = [run for network in networks.values() for run in network.quantized]
    images = " or ".join(dict.fromkeys(count(run.calibration) for run in runs))
    caption = (QUANTIZATION.format(images=images),)
    lines = [
        line for name, network in networks.items() for line in _lines(name, network)
    ]
    return item_table(
        [],
        TableText("quantization", "Quantization", "network", caption),
        [(line.network, line) for line in lines],
        columns_of(QuantizationLine),
        _notes(networks),
    )


def _notes(networks: Mapping[str, Network]) -> Iterator[str]:
    """Return the notes on the networks; a note that several share names them."""
    pairs = []
    for name, network in networks.items():
        for run in network.quantized:
            if run.reference:
                pairs.append((f"{TORCHS}: {run.reference.how}", name))
            pairs += [(f"not measured: {missing}", name) for missing in run.missing]
    for note, names in by_key(pairs).items():
        yield f"{note} ({', '.join(dict.fromkeys(names))})"


def histograms(groups: Sequence[ConditionGroup]) -> Picture | None:
    """Plot the distributions of the first network's weights and activations, if any."""
    networks = networks_of(groups)
    if not networks:
        return None
    name, *others = networks
    return panels(
        f"Weights and activations of {name}",
        [Panel(f"{s.layer}: {s.what}", s) for s in networks[name].first.spreads],
        _histogram,
        caption=[f"Values in {BINS} equal bins."],
        legend={"values": BLUE, "mean ± 3 standard deviations": IDEAL},
        missing=others,
        height=1.7,
    )


def _histogram(axis: Axes, panel: Panel[Spread]) -> list[str]:
    """Draw the values of a tensor; return their range in words."""
    spread = panel.data
    width = (spread.most - spread.least) / BINS
    edges = [spread.least + width * n for n in range(BINS + 1)]
    axis.stairs(spread.counts, edges, fill=True, color=BLUE)
    for side in (-3, 3):
        axis.axvline(spread.mean + side * spread.sigma, **IDEAL)
    logarithmic(axis, "y", "number of values", at=[1])
    return [
        f"{panel.title} {three_digits(spread.least)} to {three_digits(spread.most)}"
    ]


class SpreadLine(NamedTuple):
    """The distribution of the values of one tensor; `counts` of equal bins from least to most."""

    network: str
    layer: str
    what: str
    values: int
    least: float
    most: float
    sigma_low: float
    sigma_high: float
    percentile: float
    mean: float
    sigma: float
    counts: str


def spreads(group: ConditionGroup) -> Sheet | None:
    """Return the ranges of weights and activations; None if nothing was quantized."""
    lines = [
        line_from(
            SpreadLine,
            spread,
            network=name,
            sigma_low=spread.mean - 3 * spread.sigma,
            sigma_high=spread.mean + 3 * spread.sigma,
            counts=" ".join(map(str, spread.counts)),
        )
        for name, network in networks_of([group]).items()
        for spread in network.first.spreads
    ]
    return Sheet(columns=SpreadLine._fields, rows=tuple(lines)) if lines else None
