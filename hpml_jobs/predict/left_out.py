"""The errors of a model and of no change on a study's own cells, each left out and predicted.

An error is relative, |predicted / measured - 1|: 0.05 is 5 %.
"""

import math
from collections.abc import Iterable, Iterator, Sequence

from hpml_jobs.core.value import Value
from hpml_jobs.predict.model import Axis, CannotPredictError, LeaveOut, Model, NoChange
from hpml_jobs.predict.place import Observation, changed


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
