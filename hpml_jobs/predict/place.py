"""Places and what was measured at them: observations, and the targets of predictions.

Times are seconds of an iteration: of one optimizer step, all its micro-steps included.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from hpml_jobs.core.measurements import CollectiveKind
from hpml_jobs.core.strategies import Strategy, is_baseline
from hpml_jobs.core.value import Value


class Size(NamedTuple):
    """A number of processes on a number of nodes."""

    nodes: int
    gpus: int

    @property
    def crosses_nodes(self) -> bool:
        """Whether messages leave a node."""
        return self.nodes > 1

    @property
    def gpus_per_node(self) -> int:
        """GPUs on each node."""
        return math.ceil(self.gpus / self.nodes)

    @property
    def text(self) -> str:
        """Its keys: `gpus=16 nodes=2`."""
        return f"gpus={self.gpus}" + (f" nodes={self.nodes}" if self.crosses_nodes else "")


class Kind(NamedTuple):
    """What all observations of a series share: strategy, training path and treatment."""

    strategy: str
    path: str
    treatment: str


class SentMessages(Value, frozen=True, kw_only=True):
    """Messages of one kind and size that a rank passes through a collective in one iteration."""

    kind: CollectiveKind
    bytes: int
    per_iteration: float


class Sweep(Value, frozen=True, kw_only=True):
    """Seconds of one collective by message bytes, on idle devices."""

    kind: CollectiveKind
    times_s: dict[int, float]


class Place(Value, frozen=True, kw_only=True):
    """What an observation and a target have in common: where and how an iteration computes.

    `batch` is per GPU (per process with device=cpu) and micro-step. `path` is the training path in
    words, without accumulation; `treatment` what else was done to the cell, in words.
    """

    gpus: int
    batch: int
    strategy: Strategy
    nodes: int = 1
    accumulate: int = 1
    path: str = ""
    treatment: str = ""

    @property
    def size(self) -> Size:
        """Its GPUs and nodes."""
        return Size(self.nodes, self.gpus)

    @property
    def kind(self) -> Kind:
        """What it shares with the observations of its series."""
        return Kind(self.strategy.value, self.path, self.treatment)

    @property
    def gpus_per_node(self) -> int:
        """GPUs on each node, the last one rounded up."""
        return self.size.gpus_per_node

    @property
    def samples(self) -> int:
        """Samples of an iteration on all GPUs."""
        return self.gpus * self.batch * self.accumulate


class Observation(Place, frozen=True, kw_only=True):
    """A measured place: medians over its runs, in seconds per iteration.

    Of a rate alone there is nothing but `step_s`. `stall_s` is the part of it in which the device
    waited for a batch; `unsynced_s` is an iteration without exchange on the same GPUs; the
    other times are those of the instrumented epoch, on the rank that waits least. `messages` are
    those of gradients and parameters; `sweeps` are the microbenchmark's.
    """

    step_s: float
    runs: int = 1
    stall_s: float | None = None
    unsynced_s: float | None = None
    backward_s: float | None = None
    optimizer_s: float | None = None
    exposed_s: float | None = None
    messages: tuple[SentMessages, ...] = ()
    sweeps: tuple[Sweep, ...] = ()
    cells: tuple[str, ...] = ()


class Target(Place, frozen=True, kw_only=True):
    """A place to predict."""


def place_of(value: Place) -> dict[str, Any]:
    """Return the fields that an observation or a target has as a place, by name."""
    return {field.name: getattr(value, field.name) for field in msgspec.structs.fields(Place)}


def changed(value: Place, **fields: object) -> Target:
    """Return the target that differs from a place in some fields."""
    return Target(**place_of(value) | fields)


def distance(target: Place, nearest: Place) -> float:
    """Return how far a target is from a measured place: the sum of doublings and halvings.

    Doublings of GPUs, of the batch and of micro-steps count alike; beyond one doubling of nodes,
    those of nodes and GPUs count as often as nodes double.

    >>> eight = Place(gpus=8, batch=32, strategy=Strategy.DDP)
    >>> distance(Place(gpus=32, batch=64, strategy=Strategy.DDP, nodes=4), eight)
    9.0
    """
    ratios = (target.batch / nearest.batch, target.accumulate / nearest.accumulate)
    gpus, nodes, *others = (
        abs(math.log2(ratio))
        for ratio in (target.gpus / nearest.gpus, target.nodes / nearest.nodes, *ratios)
    )
    return (gpus + nodes) * max(nodes, 1.0) + sum(others)


def series_of(observations: Sequence[Observation]) -> dict[Kind, list[Observation]]:
    """Return the measured cells on several GPUs by strategy, path and treatment."""
    series: dict[Kind, list[Observation]] = {}
    for cell in observations:
        if cell.gpus > 1:
            series.setdefault(cell.kind, []).append(cell)
    return series


def singles_of(observations: Sequence[Observation], path: str) -> list[Observation]:
    """Return the plain loop on one GPU with a training path."""
    return [
        cell
        for cell in observations
        if cell.gpus == 1
        and cell.path == path
        and is_baseline(cell.strategy, cell.treatment, cell.path)
    ]
