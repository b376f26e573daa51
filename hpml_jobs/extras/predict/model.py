"""An estimate of a time of an iteration, its errors on a study's own cells, and its band.

Each cell is left out and predicted from the others, by the model and by no change. An error is
relative, |predicted / measured - 1|: 0.05 is 5 %.

The band of a prediction is as wide as the errors on left-out places say it must be. For it errors
are taken as log(measured / predicted). They are assumed to grow with the square root of the
distance, as the sum of independent errors per step does: one doubling of GPUs or of the batch is a
distance of 1. What is missing beyond the measured nodes (the latency of a ring, a spine) is no
independent error: it grows in proportion to the doublings of nodes or faster. So n of them are a
distance of n^2. Each left-out place gives one estimate of the error per step,
error / sqrt(distance), and the band of a target at distance d is

    predicted x exp(+- t x s x sqrt(d)),    s = max(root mean square of the estimates, FLOOR),

with t the 95 % quantile of Student's t for as many degrees of freedom as there were left-out
places, since s is not known but estimated from them: from one place the band is more than three
times as wide as from many.
"""

import math
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from hpml_jobs.core.value import Value
from hpml_jobs.extras.predict.place import MeasuredPlace, Target


class Axis(StrEnum):
    """What a target changes against the measured places."""

    GPUS = "GPUs"
    NODES = "nodes"
    TRANSFER = "batch, measured on fewer GPUs"


HOW = {
    Axis.GPUS: "each size from the smaller ones",
    Axis.NODES: "each number of nodes from fewer",
    Axis.TRANSFER: "each batch of a size from its others and from smaller sizes",
}
"""What is left out to try an axis and what it is predicted from, in words."""


class ModelStep(NamedTuple):
    """A part of the way from the measured places to a target: along an axis, so far.

    `errors` per root of the distance (see `width`) are known before any cell is left out: of the
    fit, and of published tables. There is at least one.
    """

    axis: Axis
    distance: float
    errors: tuple[float, ...]


class Estimate(NamedTuple):
    """A time of an iteration with the way to it from what was measured, and what it rests on.

    `doubt` is |log| of the ratio to the time of another form that the cells do not rule out, of
    several ones the root of the sum of squares. `other_times_s` are times that the band holds as
    well. `is_null`: it is no more than no change per GPU.
    """

    step_s: float
    steps: tuple[ModelStep, ...] = ()
    doubt: float = 0.0
    other_times_s: tuple[float, ...] = ()
    remarks: tuple[str, ...] = ()
    is_null: bool = False


class CannotPredictError(Exception):
    """Why a target cannot be predicted, and the place whose cell would make it possible."""

    def __init__(self, reason: str, wanted: Target | None = None) -> None:
        """Keep the reason, and the place that a cell should measure."""
        super().__init__(reason)
        self.wanted = wanted


def no_change_s(cells: Iterable[MeasuredPlace], target: Target) -> float:
    """Return the null: the time of the largest measured size that is not larger, at this batch.

    Raises:
        CannotPredictError: nothing as small was measured.
    """
    smaller = [
        cell
        for cell in cells
        if cell.batch == target.batch
        and cell.gpus <= target.gpus
        and cell.nodes <= target.nodes
    ]
    if not smaller:
        raise CannotPredictError(
            f"nothing as small as {target.gpus} GPUs on {target.nodes} nodes was measured at batch "
            f"{target.batch}",
            target,
        )
    return max(smaller, key=lambda cell: cell.gpus).step_s


FLOOR = 0.01
"""The least error per step: what two launches of one cell differ by on a quiet machine."""

_QUANTILES = (
    *(6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812),
    *(1.796, 1.782, 1.771, 1.761, 1.753, 1.746, 1.740, 1.734, 1.729, 1.725),
)
"""95 % quantiles of Student's t for 1, 2, … 20 degrees of freedom."""


class LeftOutCell(Value, frozen=True, kw_only=True):
    """A measured place that was predicted from others only, by the model and by the null.

    `distance` is how far it lies from those others, as `Step.distance`.
    """

    observation: MeasuredPlace
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
    points: tuple[LeftOutCell, ...]

    @property
    def model(self) -> Errors:
        """The errors of the model."""
        return errors_of([point.model_error for point in self.points])

    @property
    def null(self) -> Errors:
        """The errors of no change per GPU."""
        return errors_of([point.null_error for point in self.points])

    @property
    def is_null_better(self) -> bool:
        """Whether no change per GPU has a smaller mean error than the model."""
        return self.null.mean < self.model.mean


def width(distance: float, errors: Sequence[float]) -> float:
    """Return the logarithm of the ends of a band over the prediction, at a distance from cells.

    `errors` are the errors per step, `log_errors_per_step`; there is at least one.

    >>> [round(math.exp(sign * width(4.0, [0.02] * 20)), 3) for sign in (-1, 1)]
    [0.933, 1.071]
    >>> [round(math.exp(sign * width(1.0, [0.02])), 3) for sign in (-1, 1)]
    [0.881, 1.135]
    """
    mean_square = math.fsum(error * error for error in errors) / len(errors)
    spread = max(math.sqrt(mean_square), FLOOR)
    quantile = _QUANTILES[min(len(errors), len(_QUANTILES)) - 1]
    steps = max(distance, 1.0)
    return quantile * spread * math.sqrt(steps)


def log_errors_per_step(
    points: Iterable[LeftOutCell], *, of_null: bool = False
) -> list[float]:
    """Return the logarithms of measured over predicted per step, of the model or of the null."""
    errors = []
    for point in points:
        predicted_s = point.null_s if of_null else point.model_s
        error = math.log(point.observation.step_s / predicted_s)
        errors.append(error / math.sqrt(max(point.distance, 1.0)))
    return errors
