"""Places that were measured, and places to predict.

Times are seconds of an iteration: of one optimizer step, all its micro-steps included.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from hpml_jobs.core.place import Place, baseline_setup
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.core.value import Value


class SeriesKind(NamedTuple):
    """What all observations of a series share: strategy, training path and treatment."""

    strategy: Strategy
    path: str
    treatment: str


class Target(Value, frozen=True, kw_only=True):
    """A place to predict, where an iteration has `accumulate` micro-steps."""

    place: Place
    accumulate: int = 1

    @property
    def gpus(self) -> int:
        """GPUs of all nodes (processes with device=cpu)."""
        return self.place.setup.gpus

    @property
    def nodes(self) -> int:
        """Nodes."""
        return self.place.setup.nodes

    @property
    def batch(self) -> int:
        """Samples of a micro-step on each GPU."""
        return self.place.batch_per_gpu

    @property
    def strategy(self) -> Strategy:
        """How gradients are averaged."""
        return self.place.setup.strategy

    @property
    def kind(self) -> SeriesKind:
        """What it shares with the observations of its series."""
        setup = self.place.setup
        return SeriesKind(setup.strategy, setup.path, setup.treatment)

    @property
    def gpus_per_node(self) -> int:
        """GPUs on each node, the last one rounded up."""
        return math.ceil(self.gpus / self.nodes)

    @property
    def samples(self) -> int:
        """Samples of an iteration on all GPUs."""
        return self.gpus * self.batch * self.accumulate


class MeasuredPlace(Target, frozen=True, kw_only=True):
    """A measured place, which is a target too once it is left out: medians over its runs."""

    step_s: float
    runs: int = 1
    cells: tuple[str, ...] = ()


def changed(target: Target, batch: int | None = None, **setup: Any) -> Target:
    """Return the target that differs from another one in its batch and fields of its setup."""
    place = Place(target.place.setup._replace(**setup), batch or target.batch)
    return Target(place=place, accumulate=target.accumulate)


def alone(target: Target) -> Target:
    """Return the plain loop on one GPU with the training path and the batch of a target."""
    setup = baseline_setup(target.place.setup.path)
    return Target(place=Place(setup, target.batch), accumulate=target.accumulate)


def distance(target: Target, nearest: Target) -> float:
    """Return how far a target is from a measured place: the sum of doublings and halvings.

    Doublings of GPUs and of the batch count alike; beyond one doubling of nodes, those of nodes and
    GPUs count as often as nodes double.

    >>> from hpml_jobs.core.place import Setup
    >>> eight = Target(place=Place(Setup(8, 1, Strategy.DDP), 32))
    >>> distance(changed(eight, batch=64, gpus=32, nodes=4), eight)
    9.0
    """
    gpus, nodes, batch = (
        abs(math.log2(ratio))
        for ratio in (
            target.gpus / nearest.gpus,
            target.nodes / nearest.nodes,
            target.batch / nearest.batch,
        )
    )
    return (gpus + nodes) * max(nodes, 1.0) + batch


def series_of(
    observations: Sequence[MeasuredPlace],
) -> dict[SeriesKind, list[MeasuredPlace]]:
    """Return the measured cells on several GPUs by strategy, path and treatment."""
    series: dict[SeriesKind, list[MeasuredPlace]] = {}
    for cell in observations:
        if cell.gpus > 1:
            series.setdefault(cell.kind, []).append(cell)
    return series


def singles_of(observations: Sequence[MeasuredPlace], path: str) -> list[MeasuredPlace]:
    """Return the plain loop on one GPU with a training path."""
    baseline = baseline_setup(path)
    return [cell for cell in observations if cell.place.setup == baseline]
