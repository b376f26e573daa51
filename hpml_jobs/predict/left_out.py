"""The errors of a model and of no change on a study's own cells, and the band that they give.

Each cell is left out and predicted from the others. An error is relative, |predicted / measured -
1|: 0.05 is 5 %.

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
from collections.abc import Iterable, Iterator, Sequence

from hpml_jobs.core.value import Value
from hpml_jobs.predict.model import Axis, CannotPredictError, LeaveOut, Model, NoChange
from hpml_jobs.predict.place import Observation, changed

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
    for cell, rest, fitted in pairs:
        target = changed(cell)
        try:
            estimate = fitted.at(target)
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
