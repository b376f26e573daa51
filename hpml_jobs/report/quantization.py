"""The table of quantization (lab part B) step by step, and the sheet of distributions."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, NamedTuple, Self

import msgspec

from hpml_jobs.core.conditions import WORKLOAD
from hpml_jobs.core.quantization import (
    Bound,
    QuantizationStep,
    Quantized,
    QuantizedParts,
    TorchReference,
    quantized_of,
)
from hpml_jobs.core.record import Record
from hpml_jobs.report.frame import learning
from hpml_jobs.report.frame.learning import Mean
from hpml_jobs.report.frame.numbers import accuracy, count, three_digits
from hpml_jobs.report.frame.table import (
    Column,
    Number,
    Sheet,
    Table,
    TableText,
    columns_of,
    filled,
    item_table,
    row_name,
)
from hpml_jobs.results.groups import ConditionGroup

QUANTIZATION = (
    "Quantized after training, evaluated on the whole test set. int8: integers in -128..127, "
    "symmetric around zero; scale = bound / 127. Bound: the total range, 3 standard deviations, "
    "or a percentile of the absolute values. A scale is per layer, or per output channel of the "
    "weights. int8 weights: computed in fp32. With activations: computed in integers, with int32 "
    "sums and biases. Activations are profiled on {images} training images."
)
DROP = "Drop: percentage points of accuracy below fp32. Bytes: stored parameters, scales included."

TORCHS = "torch's own int8"

BOUNDS = {Bound.RANGE: "range", Bound.SIGMA: "3-sigma", Bound.PERCENTILE: "percentile"}
"""What a scale covers, in words."""


class Runs(NamedTuple):
    """The runs of one place that were quantized alike: each run's seed and its results."""

    name: str
    seeds: list[int]
    quantized: list[Quantized]

    @property
    def first(self) -> Quantized:
        """The first run, for values without a meaningful mean."""
        return self.quantized[0]


class Result(NamedTuple):
    """One line: what was quantized, and each run's results; accuracies are of 1.

    `has_bias`: a bias is quantized with it, which `title` says beside `what`.
    """

    runs: Runs
    what: str
    bound: str
    scales: str
    steps: list[QuantizationStep | TorchReference]
    has_bias: bool = False

    @property
    def title(self) -> str:
        """What was quantized, in the words of the table."""
        return f"{self.what}, int32 bias" if self.has_bias else self.what

    @property
    def accuracy(self) -> Mean | None:
        """The mean accuracy over seeds."""
        networks = (step.accuracy for step in self.steps)
        return Mean.of(zip(self.runs.seeds, networks, strict=True))

    @property
    def drop(self) -> Mean | None:
        """The loss of accuracy against fp32, over seeds; None for fp32 itself."""
        if self.what == "fp32":
            return None
        pairs = zip(_fp32(self.runs), self.steps, strict=True)
        networks = (before.accuracy - step.accuracy for before, step in pairs)
        return Mean.of(zip(self.runs.seeds, networks, strict=True))

    @property
    def of_fp32(self) -> float:
        """The bytes as a share of fp32's."""
        return self.steps[0].bytes / _fp32(self.runs)[0].bytes


class _Alike(NamedTuple):
    """Records of one place that were trained and quantized in the same way, given by `how`."""

    workload: str
    place: str
    how: dict[str, float]
    records: list[Record]


def quantized(groups: Sequence[ConditionGroup]) -> list[Runs]:
    """Return all quantized runs, grouped where they are alike, those with a bias last.

    Where the names of networks meet, their places and what differs in the way tell them apart.
    """
    run_groups: list[_Alike] = []
    for number, group in enumerate(groups, start=1):
        place = f"group {number}, " if len(groups) > 1 else ""
        run_groups += _alike(group, place)
    networks = []
    for run_group in run_groups:
        seeds = [record.cell.seed for record in run_group.records]
        run_results = [*filter(None, map(quantized_of, run_group.records))]
        networks.append(Runs(_name(run_group, run_groups), seeds, run_results))
    return sorted(networks, key=lambda runs: runs.first.bias)


def _alike(group: ConditionGroup, prefix: str) -> Iterator[_Alike]:
    workload = dict(group.requested)[WORKLOAD]
    for row in group.timed:
        ways: dict[tuple[float, ...], _Alike] = {}
        for record in group.records(row):
            if record.quantized:
                how = _how(record)
                new = _Alike(workload, prefix + row_name(group, row), how, [])
                ways.setdefault(tuple(how.values()), new).records.append(record)
        yield from (ways[way] for way in sorted(ways))


def _how(record: Record) -> dict[str, float]:
    """Return the requested quantization settings, and the epochs that the network was trained."""
    return {
        **msgspec.to_builtins(record.cell.quantize),
        "epochs": learning.epochs(record),
    }


def _name(run_group: _Alike, run_groups: Iterable[_Alike]) -> str:
    """Return `lenet_cifar10`, or with what sets it apart `lenet_cifar10, calibration 100`."""
    same_workload = [
        other for other in run_groups if other.workload == run_group.workload
    ]
    parts = [run_group.workload]
    if len({other.place for other in same_workload}) > 1:
        parts.append(run_group.place)
    for key, value in run_group.how.items():
        if len({other.how.get(key) for other in same_workload}) == 1:
            continue
        word = str(value)
        if isinstance(value, bool):
            word = "yes" if value else "no"
        parts.append(f"{key} {word}")
    return ", ".join(parts)


def results(runs: Runs) -> Iterator[Result]:
    """Return the runs' steps in the order of the lab, then torch's own."""
    for step in runs.first.steps:
        of_runs = [
            s
            for run in runs.quantized
            for s in run.steps
            if _scheme(s) == _scheme(step)
        ]
        if len(of_runs) != len(runs.quantized):
            continue
        bound, scales = "", ""
        if step.bound is not None:
            bound = BOUNDS[step.bound]
            scales = "channel" if step.per_channel else "layer"
        what = _WORDS.get(step.what, step.what)
        has_bias = step.what == QuantizedParts.ALL and runs.first.bias
        yield Result(runs, what, bound, scales, list(of_runs), has_bias)
    references = [run.reference for run in runs.quantized if run.reference]
    if len(references) == len(runs.quantized):
        yield Result(runs, TORCHS, "", "", list(references))


def _scheme(step: QuantizationStep) -> tuple[str, Bound | None, bool]:
    return step.what, step.bound, step.per_channel


def _fp32(runs: Runs) -> list[QuantizationStep]:
    return [run.steps[0] for run in runs.quantized]


_WORDS: dict[str, str] = {
    QuantizedParts.WEIGHTS: "int8 weights",
    QuantizedParts.ALL: "int8 weights + activations",
}


def _points(mean: Mean) -> str:
    return learning.mean_text(
        mean, lambda share: accuracy(share) if round(share, 4) else "0.00"
    )


def _accuracy(mean: Mean) -> str:
    return learning.mean_text(mean, accuracy)


class QuantizationLine(NamedTuple):
    """What was quantized and the accuracy that is left; accuracies are of 1."""

    network: str
    quantized: Annotated[str, Column("quantized", words=True)]
    bound: Annotated[str | None, Column("scale by", words=True)]
    scales: Annotated[str | None, Column("for each", words=True)]
    over_seeds: Annotated[
        Mean | None, Column("accuracy, %", _accuracy, on_page_only=True)
    ]
    lost: Annotated[Mean | None, Column("drop", _points, on_page_only=True)]
    bytes: Annotated[int, Column("bytes", count)]
    of_fp32: Annotated[float, Column("of fp32", three_digits)]
    runs: int
    seeds: int
    accuracy: Number
    accuracy_deviation: Number
    drop: Number
    drop_deviation: Number

    @classmethod
    def of(cls, result: Result) -> Self:
        """Return the line of a result."""
        reached, lost = result.accuracy, result.drop
        return cls(
            network=result.runs.name,
            quantized=result.title,
            bound=result.bound or None,
            scales=result.scales or None,
            over_seeds=reached,
            lost=lost,
            bytes=result.steps[0].bytes,
            of_fp32=result.of_fp32,
            runs=len(result.steps),
            seeds=len(set(result.runs.seeds)),
            accuracy=reached.mean if reached else None,
            accuracy_deviation=reached.deviation if reached else None,
            drop=lost.mean if lost else None,
            drop_deviation=lost.deviation if lost else None,
        )


def quantization(groups: Sequence[ConditionGroup]) -> Table | None:
    """Return the table of all networks of the study; None if none was quantized."""
    networks = quantized(groups)
    if not networks:
        return None
    images = " or ".join(
        dict.fromkeys(
            count(run.calibration) for runs in networks for run in runs.quantized
        )
    )
    caption = (QUANTIZATION.format(images=images), DROP, learning.OVER_SEEDS)
    return item_table(
        [group for group in groups if quantized([group])],
        TableText("quantization", "Quantization", "network", caption),
        (
            (runs.name, QuantizationLine.of(o))
            for runs in networks
            for o in results(runs)
        ),
        columns_of(QuantizationLine),
        _notes(networks),
    )


def _notes(networks: Iterable[Runs]) -> Iterator[str]:
    """Return the notes on the networks; a note that several share names them."""
    names_by_note: dict[str, dict[str, None]] = {}
    for runs in networks:
        of_runs = [
            f"{TORCHS}: {run.reference.how}" for run in runs.quantized if run.reference
        ]
        for run in runs.quantized:
            of_runs += [f"not measured: {missing}" for missing in run.missing]
        for what in of_runs:
            names_by_note.setdefault(what, {})[runs.name] = None
    return (f"{what} ({', '.join(names)})" for what, names in names_by_note.items())


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
        filled(
            SpreadLine,
            spread,
            network=runs.name,
            sigma_low=spread.mean - 3 * spread.sigma,
            sigma_high=spread.mean + 3 * spread.sigma,
            counts=" ".join(map(str, spread.counts)),
        )
        for runs in quantized([group])
        for spread in runs.first.spreads
    ]
    return Sheet(columns=SpreadLine._fields, rows=tuple(lines)) if lines else None
