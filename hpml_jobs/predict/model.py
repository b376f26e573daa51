"""What a model of iterations is, its errors on a study's own cells, and the band that they give.

Made from measured cells, a model gives the time at a place. It may need more than it finds: then it
says why it cannot predict, and what to measure.

Each cell is left out and predicted from the others, by the model and by no change. An error is
relative, |predicted / measured - 1|: 0.05 is 5 %.

The band of a prediction is as wide as the errors on left-out places say it must be. For it errors
are taken as log(measured / predicted). They are assumed to grow with the square root of the
distance, as the sum of independent errors per step does: one doubling of GPUs, batch or micro-steps
is a distance of 1. What is missing beyond the measured nodes (the latency of a ring, a spine) is no
independent error: it grows in proportion to the doublings of nodes or faster. So n of them, with
those of the GPUs on them, are a distance of 2 n^2. Each left-out place gives one estimate of the
error per step, error / sqrt(distance), and the band of a target at distance d is

    predicted x exp(+- t x s x sqrt(d)),    s = max(root mean square of the estimates, FLOOR),

with t the 95 % quantile of Student's t for as many degrees of freedom as there were left-out
places, since s is not known but estimated from them: from one place the band is more than three
times as wide as from many.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from hpml_jobs.core.value import Value
from hpml_jobs.predict.place import Observation, Place, Target, changed

FAR = 4
"""Ratio to the measured size from which on a prediction is marked."""

BEYOND_NODES = (
    "links that more than {nodes} nodes share (a spine) may be slower than the measured ones: no "
    "band contains that"
)


class Axis(StrEnum):
    """What a target changes against the measured places."""

    GPUS = "GPUs"
    NODES = "nodes"
    BATCH = "batch"
    TRANSFER = "batch, measured on fewer GPUs"
    ACCUMULATE = "accumulation"


HOW = {
    Axis.GPUS: "each size from the smaller ones",
    Axis.NODES: "each number of nodes from fewer",
    Axis.BATCH: "each batch from the others",
    Axis.TRANSFER: "each batch of a size from its others and from smaller sizes",
    Axis.ACCUMULATE: "each accumulation from the others",
}
"""What is left out to try an axis and what it is predicted from, in words."""


class Parts(Value, frozen=True, kw_only=True):
    """The parts of a time of an iteration; they add up to it."""

    compute_s: float
    exposed_s: float
    interference_s: float


class Step(NamedTuple):
    """A part of the way from the measured places to a target: along some axes, so far.

    `errors` per root of the distance (see `width`) are known before any cell is left out: of the
    fit, and of published tables.
    """

    axes: tuple[Axis, ...]
    distance: float
    errors: tuple[float, ...] = ()


class Estimate(NamedTuple):
    """A time of an iteration with the way to it from what was measured, and what it rests on.

    `doubt` is |log| of the ratio to the time of another form that the cells do not rule out, of
    several ones the root of the sum of squares. `is_null`: it is no more than no change per GPU.
    """

    step_s: float
    steps: tuple[Step, ...] = ()
    doubt: float = 0.0
    parts: Parts | None = None
    remarks: tuple[str, ...] = ()
    is_null: bool = False

    @property
    def axes(self) -> tuple[Axis, ...]:
        """What the target changes."""
        return tuple(axis for step in self.steps for axis in step.axes)


class CannotPredictError(Exception):
    """Why a target cannot be predicted, and the place whose cell would make it possible."""

    def __init__(self, reason: str, wanted: Place | None = None) -> None:
        """Keep the reason, and the place that a cell should measure."""
        super().__init__(reason)
        self.wanted = wanted


class LeaveOut(NamedTuple):
    """A measured cell, the other cells that may predict it, and `Model.at` made from these."""

    cell: Observation
    rest: Sequence[Observation]
    at: Callable[[Target], Estimate]


class Model(Protocol):
    """A way to predict, made from cells, that can be tried on them."""

    def at(self, target: Target) -> Estimate:
        """Return the time of a target.

        Raises:
            CannotPredictError: what it needs was not measured.
        """
        ...

    def trials(self, axis: Axis) -> Iterator[tuple[str, Iterator[LeaveOut]]]:
        """Yield ways to leave out cells along an axis, in words; the first that works counts."""
        ...


class NoChange(NamedTuple):
    """The null: a GPU takes as long for a sample as in the nearest measured place.

    It is that at the same batch with the most GPUs that are not more than the target's, on no more
    nodes; without that batch, the one with the nearest batch.
    """

    cells: Sequence[Observation]

    def at(self, target: Target) -> Estimate:
        """Return the time of a target.

        Raises:
            CannotPredictError: nothing as small was measured.
        """
        smaller = [c for c in self.cells if c.gpus <= target.gpus and c.nodes <= target.nodes]
        if not smaller:
            raise CannotPredictError(f"nothing as small as {target.size.text} was measured", target)
        nearest = min(
            smaller,
            key=lambda cell: (
                abs(math.log(cell.batch / target.batch)),
                -cell.gpus,
                abs(math.log(cell.accumulate / target.accumulate)),
            ),
        )
        ratio = target.batch * target.accumulate / (nearest.batch * nearest.accumulate)
        return Estimate(nearest.step_s * ratio, is_null=True)


FLOOR = 0.01
"""The least error per step: what two launches of one cell differ by on a quiet machine."""

_QUANTILES = (
    *(6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812),
    *(1.796, 1.782, 1.771, 1.761, 1.753, 1.746, 1.740, 1.734, 1.729, 1.725),
)
"""95 % quantiles of Student's t for 1, 2, … 20 degrees of freedom."""


class LeftOut(Value, frozen=True, kw_only=True):
    """A measured place that was predicted from others only, by the model and by the null.

    `distance` is how far it lies from those others, as `Step.distance`.
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


def left_out(pairs: Iterable[LeaveOut]) -> Iterator[LeftOut]:
    """Yield every cell that the cells left beside it can predict."""
    for cell, rest, at in pairs:
        target = changed(cell)
        try:
            estimate = at(target)
            null_s = NoChange(rest).at(target).step_s
        except CannotPredictError:
            continue
        yield LeftOut(
            observation=cell,
            model_s=estimate.step_s,
            null_s=null_s,
            distance=math.fsum(step.distance for step in estimate.steps),
        )


def skill_along(model: Model, axis: Axis) -> Skill | None:
    """Return the errors along one axis; None where nothing can be left out."""
    for how, pairs in model.trials(axis):
        points = tuple(left_out(pairs))
        if points:
            return Skill(how=how, points=points)
    return None


def width(distance: float, errors: Sequence[float]) -> float:
    """Return the logarithm of the ends of a band over the prediction, at a distance from cells.

    `errors` are the errors per step, `log_errors_per_step`; there is at least one.

    >>> [round(math.exp(sign * width(4.0, [0.02] * 20)), 3) for sign in (-1, 1)]
    [0.933, 1.071]
    >>> [round(math.exp(sign * width(1.0, [0.02])), 3) for sign in (-1, 1)]
    [0.881, 1.135]
    """
    spread = max(math.sqrt(math.fsum(e * e for e in errors) / len(errors)), FLOOR)
    quantile = _QUANTILES[min(len(errors), len(_QUANTILES)) - 1]
    return quantile * spread * math.sqrt(max(distance, 1.0))


def log_errors_per_step(points: Iterable[LeftOut], *, of_null: bool = False) -> list[float]:
    """Return the logarithms of measured over predicted per step, of the model or of the null."""
    return [
        math.log(point.observation.step_s / (point.null_s if of_null else point.model_s))
        / math.sqrt(max(point.distance, 1.0))
        for point in points
    ]
