"""What quantization costs and saves (lab part B): the networks of a study, step by step."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from hpml_jobs.quantization import Bound, Quantized, Reference, Step
from hpml_jobs.report import learnt
from hpml_jobs.report.full import Column, Columns, drawn, label
from hpml_jobs.report.layout import Table
from hpml_jobs.report.learnt import Mean
from hpml_jobs.report.numbers import accuracy, count, ratio
from hpml_jobs.report.scope import Scope

QUANTIZATION = (
    "Quantized after training, judged by the whole test set. int8: integers in -128..127 around "
    "zero; scale = bound / 127, the bound being the total range, 3 standard deviations, or a "
    "percentile of the absolute values; a scale for each layer, or for each output channel of its "
    "weights. int8 weights: computed in fp32; with activations: computed in integers, sums and "
    "biases int32. Activations are profiled on {images} training images."
)
DROP = "Drop: points of accuracy below fp32. Bytes: of the stored parameters, scales included."

TORCHS = "torch's own int8"

BOUNDS = {Bound.RANGE: "range", Bound.SIGMA: "3-sigma", Bound.PERCENTILE: "percentile"}
"""What a scale covers, in words."""


class Network(NamedTuple):
    """The quantized runs of one place: a network trained in one way, by seed and repeat."""

    name: str
    runs: list[Quantized]


class Result(NamedTuple):
    """One line: what was quantized of a network, and each run's results; accuracies are of 1."""

    network: Network
    what: str
    bound: str
    scales: str
    steps: list[Step | Reference]

    @property
    def accuracy(self) -> Mean | None:
        """Over runs."""
        return Mean.of(step.accuracy for step in self.steps)

    @property
    def drop(self) -> Mean | None:
        """Below fp32, over runs; None for fp32 itself."""
        if self.what == "fp32":
            return None
        pairs = zip(_fp32(self.network), self.steps, strict=True)
        return Mean.of(before.accuracy - step.accuracy for before, step in pairs)

    @property
    def of_fp32(self) -> float:
        """Its bytes as a part of fp32's."""
        return self.steps[0].bytes / _fp32(self.network)[0].bytes


def networks(scopes: Sequence[Scope]) -> list[Network]:
    """Every place that was quantized, networks with a bias last.

    Where names meet, place and group tell them apart.
    """
    found = [
        (number, scope, entry, runs)
        for number, scope in enumerate(scopes, start=1)
        for entry in scope.timed
        if (runs := [record.quantized for record in scope.records(entry) if record.quantized])
    ]
    names = [dict(scope.alike.asked)["workload"] for _, scope, _, _ in found]
    named = []
    for name, (number, scope, entry, runs) in zip(names, found, strict=True):
        group = f" group {number}," if len(scopes) > 1 else ""
        alone = names.count(name) == 1
        named.append(Network(name if alone else f"{name},{group} {label(scope, entry)}", runs))
    return sorted(named, key=lambda network: network.runs[0].bias)


def results(network: Network) -> Iterator[Result]:
    """Its steps in the order of the lab, then torch's own."""
    for step in network.runs[0].steps:
        own = [s for run in network.runs for s in run.steps if _scheme(s) == _scheme(step)]
        if len(own) == len(network.runs):
            scales = "" if step.bound is None else "channel" if step.per_channel else "layer"
            bound = BOUNDS[step.bound] if step.bound else ""
            yield Result(network, _what(network, step.what), bound, scales, list(own))
    references = [run.reference for run in network.runs if run.reference]
    if len(references) == len(network.runs):
        yield Result(network, TORCHS, "", "", list(references))


def _scheme(step: Step) -> tuple[str, Bound | None, bool]:
    return step.what, step.bound, step.per_channel


def _fp32(network: Network) -> list[Step]:
    return [run.steps[0] for run in network.runs]


def _what(network: Network, what: str) -> str:
    bias = ", int32 bias" if network.runs[0].bias else ""
    words = {"weights": "int8 weights", "integers": f"int8 weights + activations{bias}"}
    return words.get(what, what)


def quantization(scopes: Sequence[Scope]) -> Table | None:
    """All networks of the study under each other; None where none was quantized."""
    found = networks(scopes)
    if not found:
        return None
    shown = drawn(
        (result for network in found for result in results(network)),
        lambda result: result.network.name,
        _HEADS,
    )
    images = " or ".join(
        dict.fromkeys(count(run.calibration) for network in found for run in network.runs)
    )
    own = (scope for scope in scopes if networks([scope]))
    return Table(
        label="quantization",
        title="Quantization",
        corner="network",
        blocks=shown.blocks,
        lines=shown.lines,
        caption=(QUANTIZATION.format(images=images), DROP, learnt.OVER_RUNS),
        setting=" ".join(dict.fromkeys(scope.setting for scope in own)),
        notes=tuple(_notes(found)),
        sheet=shown.sheet,
    )


def _notes(found: Iterable[Network]) -> Iterator[str]:
    """What holds for networks, each thing once with their names."""
    told: dict[str, dict[str, None]] = {}
    for network in found:
        own = [learnt.ONE_SEED] if len(network.runs) == 1 else []
        own += [f"{TORCHS}: {run.reference.how}" for run in network.runs if run.reference]
        own += [f"not found out: {missing}" for run in network.runs for missing in run.missing]
        for what in own:
            told.setdefault(what, {})[network.name] = None
    return (f"{what} ({', '.join(names)})" for what, names in told.items())


def _points(mean: Mean) -> str:
    return mean.told(lambda share: accuracy(share) if round(share, 4) else "0.00")


_HEADS: tuple[Columns[Result], ...] = (
    Columns("", (Column("network", "", lambda result: result.network.name),)),
    Columns("quantized", (Column("quantized", "", lambda result: result.what),), text=True),
    Columns("scale by", (Column("bound", "", lambda result: result.bound or None),), text=True),
    Columns("for each", (Column("scales", "", lambda result: result.scales or None),), text=True),
    Columns(
        "accuracy, %",
        (Column("", "", lambda result: result.accuracy, lambda mean: mean.told(accuracy)),),
    ),
    Columns("drop", (Column("", "", lambda result: result.drop, _points),)),
    Columns("bytes", (Column("bytes", "", lambda result: result.steps[0].bytes, count),)),
    Columns("of fp32", (Column("of_fp32", "", lambda result: result.of_fp32, ratio),)),
    Columns(
        "",
        (
            Column("runs", "", lambda result: len(result.steps)),
            Column("accuracy", "", lambda r: r.accuracy and r.accuracy.mean),
            Column("accuracy_deviation", "", lambda r: r.accuracy and r.accuracy.deviation),
            Column("drop", "", lambda r: r.drop and r.drop.mean),
            Column("drop_deviation", "", lambda r: r.drop and r.drop.deviation),
        ),
    ),
)
