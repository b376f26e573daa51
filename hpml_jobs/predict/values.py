"""What predictions are made of and consist of: observations, targets, skill, refusals.

Times are seconds of an iteration: of one optimizer step, all its micro-steps included. An error is
relative, |predicted / measured - 1|: 0.05 is 5 %.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from hpml_jobs.core.measurements import CollectiveKind
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.core.value import Value

COVERAGE = 0.9
"""The share of measurements that a band is meant to contain."""


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
    def gpus_per_node(self) -> int:
        """GPUs on each node, the last one rounded up."""
        return math.ceil(self.gpus / self.nodes)

    @property
    def samples(self) -> int:
        """Samples of an iteration on all GPUs."""
        return self.gpus * self.batch * self.accumulate


class Observation(Place, frozen=True, kw_only=True):
    """A measured place: medians over its runs, in seconds per iteration.

    Of a rate alone there is nothing but `step_s`. `stall_s` is the part of it in which the device
    waited for a batch; `unsynced_s` is an iteration without exchange on the same GPUs (E3); the
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

    def sweep(self, kind: CollectiveKind) -> Sweep | None:
        """Return the sweep of a collective; None if it was not measured here."""
        return next((sweep for sweep in self.sweeps if sweep.kind is kind), None)


class Target(Place, frozen=True, kw_only=True):
    """A place to predict."""


class Axis(StrEnum):
    """What a target changes against the measured places."""

    GPUS = "GPUs"
    NODES = "nodes"
    BATCH = "batch"
    TRANSFER = "batch, measured on fewer GPUs"
    ACCUMULATE = "accumulation"


class LeftOut(Value, frozen=True, kw_only=True):
    """A measured place that was predicted from others only, by the model and by the null.

    `distance` is how far it lies from those others, see `band.distance`.
    """

    observation: Observation
    model_s: float
    null_s: float
    distance: float = 1.0

    @property
    def model_error(self) -> float:
        """The error of the model."""
        return abs(self.model_s / self.observation.step_s - 1)

    @property
    def null_error(self) -> float:
        """The error of no change per GPU."""
        return abs(self.null_s / self.observation.step_s - 1)


class Errors(Value, frozen=True, kw_only=True):
    """Mean, 90th percentile and largest error."""

    mean: float
    p90: float
    worst: float


def errors_of(errors: Sequence[float]) -> Errors:
    """Return mean, 90th percentile (linear between the sorted errors) and largest of some errors.

    >>> errors_of([0.0, 0.1, 0.2])
    Errors(mean=0.1, p90=0.18, worst=0.2)
    """
    ranked = sorted(errors)
    place = 0.9 * (len(ranked) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ranked) - 1)
    p90 = ranked[low] + (place - low) * (ranked[high] - ranked[low])
    mean = math.fsum(ranked) / len(ranked)
    return Errors(mean=round(mean, 12), p90=round(p90, 12), worst=ranked[-1])


class Skill(Value, frozen=True, kw_only=True):
    """The errors of the model and of the null on measured places that were left out.

    `how` says what was left out, in words: `each number of GPUs, from the smaller ones`. There is
    at least one point.
    """

    how: str
    points: tuple[LeftOut, ...]

    @property
    def model(self) -> Errors:
        """The errors of the model."""
        return errors_of([point.model_error for point in self.points])

    @property
    def null(self) -> Errors:
        """The errors of no change per GPU."""
        return errors_of([point.null_error for point in self.points])

    @property
    def is_null(self) -> bool:
        """Whether the model had too little left to predict anything but no change per GPU."""
        return all(math.isclose(p.model_s, p.null_s) for p in self.points)

    @property
    def is_null_better(self) -> bool:
        """Whether no change per GPU has a smaller mean error than the model; a tie decides nothing.

        Two batches show how time depends on the batch. Of the one that is left when the other is
        left out, the model knows no more than no change, and has the same error.
        """
        return not self.is_null and self.null.mean < self.model.mean


class Method(StrEnum):
    """What a predicted time comes from."""

    MODEL = "model"
    NULL = "no change per GPU"


class Parts(Value, frozen=True, kw_only=True):
    """The parts of the model's time of an iteration; they add up to it."""

    compute_s: float
    exposed_s: float
    interference_s: float


class Prediction(Value, frozen=True, kw_only=True):
    """A predicted iteration: `step_s` is the model's time, or the null's where that is better.

    `low_s` to `high_s` is meant to contain 90 % of measurements; None where nothing could be left
    out. `remarks` say what the figure does not rest on, each a sentence without its full stop.
    """

    target: Target
    method: Method
    step_s: float
    model_s: float
    null_s: float
    low_s: float | None = None
    high_s: float | None = None
    skill: Skill | None = None
    parts: Parts | None = None
    remarks: tuple[str, ...] = ()

    @property
    def samples_per_s(self) -> float:
        """Samples per second of all GPUs."""
        return self.target.samples / self.step_s


class Refusal(Value, frozen=True, kw_only=True):
    """Why a target is not predicted, and the one command whose cell would make it possible.

    `command` is None where no cell can help, or where the study's commands are not recorded.
    """

    target: Target
    reason: str
    command: str | None = None


class CannotPredictError(Exception):
    """Why a target cannot be predicted, and the place whose cell would make it possible."""

    def __init__(self, reason: str, wanted: Place | None = None) -> None:
        """Keep the reason, and the place that a cell should measure."""
        super().__init__(reason)
        self.wanted = wanted


class Forecast(Value, frozen=True, kw_only=True):
    """The predictions and refusals of one group of equal conditions, in the order of the targets.

    `observations` are the measured places that they rest on.
    """

    conditions: dict[str, str]
    observations: tuple[Observation, ...]
    predictions: tuple[Prediction, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()


def place_of(value: Place) -> dict[str, Any]:
    """Return the fields that an observation or a target has as a place, by name."""
    return {field.name: getattr(value, field.name) for field in msgspec.structs.fields(Place)}


def changed(value: Place, **fields: object) -> Target:
    """Return the target that differs from a place in some fields."""
    return Target(**place_of(value) | fields)
