"""Predictions of targets, each with band, skill and remarks; or the reason why there is none."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cache

from hpml_jobs.core.place import Setup
from hpml_jobs.core.value import Value
from hpml_jobs.extras.predict.model import (
    HOW,
    Axis,
    CannotPredictError,
    Estimate,
    LeftOutCell,
    Skill,
    log_errors_per_step,
    no_change_s,
    width,
)
from hpml_jobs.extras.predict.place import (
    MeasuredPlace,
    SeriesKind,
    Target,
    series_of,
    singles_of,
)
from hpml_jobs.extras.predict.rates import estimate

COVERAGE = 0.9
"""The share of measurements that a band is meant to contain."""

FEWEST_POINTS = 3
"""Left-out cells from which on the null replaces the model."""


class Method(StrEnum):
    """What a predicted time comes from."""

    MODEL = "model"
    NULL = "no change per GPU"


class Prediction(Value, frozen=True, kw_only=True):
    """A predicted iteration: `step_s` is the model's time, or the null's where that is better.

    `low_s` to `high_s` is meant to contain 90 % of measurements. `skill` is None where nothing
    could be left out. `remarks` say what the figure does not rest on, each a sentence without its
    full stop.
    """

    target: Target
    method: Method
    step_s: float
    model_s: float
    null_s: float
    low_s: float
    high_s: float
    skill: Skill | None = None
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


class Forecast(Value, frozen=True, kw_only=True):
    """The predictions and refusals of one group of equal conditions, in the order of the targets.

    `observations` are the measured places that they rest on.
    """

    conditions: dict[str, str]
    observations: tuple[MeasuredPlace, ...]
    predictions: tuple[Prediction, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()


CommandOf = Callable[[Target], str | None]
"""Returns the command that submits the cell of a place; None where it is not known."""


def predict(
    observations: Sequence[MeasuredPlace],
    targets: Iterable[Target],
    command_of: CommandOf = lambda _: None,
) -> list[Prediction | Refusal]:
    """Return a prediction or a refusal of each target, in their order.

    `observations` are cells of equal conditions, no two of them at one place. A refusal says what
    to measure, by a command where there is one.
    """
    series = series_of(observations)
    first: dict[tuple[SeriesKind, str, Setup], Target] = {}

    @cache
    def cells_of(kind: SeriesKind) -> list[MeasuredPlace]:
        return [*singles_of(observations, kind.path), *series.get(kind, ())]

    @cache
    def skill_of(kind: SeriesKind, axis: Axis) -> Skill | None:
        return skill_along(cells_of(kind), axis)

    def refusal(target: Target, fault: CannotPredictError) -> Refusal:
        """Return one command for all batches: a cell at one of them is enough for the others."""
        reason, wanted = str(fault), fault.wanted
        if wanted is None:
            return Refusal(target=target, reason=reason)
        wanted = first.setdefault((target.kind, reason, wanted.place.setup), wanted)
        command = command_of(wanted)
        if command is None:
            nodes = f" nodes={wanted.nodes}" if wanted.nodes > 1 else ""
            reason = f"{reason}: measure gpus={wanted.gpus}{nodes} batch={wanted.batch}"
        return Refusal(target=target, reason=reason, command=command)

    def predicted(target: Target) -> Prediction | Refusal:
        kind = target.kind
        try:
            by_model = estimate(cells_of(kind), target)
            null_s = no_change_s(cells_of(kind), target)
        except CannotPredictError as fault:
            return refusal(target, fault)
        skills = [skill_of(kind, step.axis) for step in by_model.steps]
        return _prediction(target, by_model, null_s, skills)

    return [predicted(target) for target in targets]


def skill_along(cells: Sequence[MeasuredPlace], axis: Axis) -> Skill | None:
    """Return the errors along one axis; None where nothing can be left out."""
    points = tuple(_left_out(cells, axis))
    return Skill(how=HOW[axis], points=points) if points else None


def _left_out(cells: Sequence[MeasuredPlace], axis: Axis) -> Iterator[LeftOutCell]:
    """Yield every cell that smaller ones at its batch predict along an axis alone.

    At another batch, it is predicted from all cells there, too.
    """
    for cell in cells:
        rest = [
            other
            for other in cells
            if (other.batch != cell.batch and axis is Axis.TRANSFER)
            or (other.batch == cell.batch and other.gpus < cell.gpus)
        ]
        try:
            by_model = estimate(rest, cell)
            null_s = no_change_s(rest, cell)
        except CannotPredictError:
            continue
        if not by_model.is_null and [step.axis for step in by_model.steps] == [axis]:
            yield LeftOutCell(
                observation=cell,
                model_s=by_model.step_s,
                null_s=null_s,
                distance=by_model.steps[0].distance,
            )


def _prediction(
    target: Target, by_model: Estimate, null_s: float, skills: Sequence[Skill | None]
) -> Prediction:
    """Return a prediction of an estimate with the skills along its steps."""
    skill = _together([along for along in skills if along])
    is_null = by_model.is_null
    if (
        skill is not None
        and skill.is_null_better
        and len(skill.points) >= FEWEST_POINTS
    ):
        is_null = True
    step_s = null_s if is_null else by_model.step_s
    times_s = [step_s, *by_model.other_times_s]
    factor = _band_factor(by_model, skills, of_null=is_null)
    return Prediction(
        target=target,
        method=Method.NULL if is_null else Method.MODEL,
        step_s=step_s,
        model_s=by_model.step_s,
        null_s=null_s,
        low_s=min(times_s) / factor,
        high_s=max(times_s) * factor,
        skill=skill,
        remarks=by_model.remarks,
    )


def _together(skills: Sequence[Skill]) -> Skill | None:
    if not skills:
        return None
    how = "; ".join(skill.how for skill in skills)
    return Skill(
        how=how, points=tuple(point for skill in skills for point in skill.points)
    )


def _band_factor(
    by_model: Estimate, skills: Sequence[Skill | None], *, of_null: bool
) -> float:
    """Return the upper end of the band over the prediction.

    The widths of the steps and the doubt are independent of each other.
    """
    logs = [by_model.doubt]
    for step, skill in zip(by_model.steps, skills, strict=True):
        points = skill.points if skill else ()
        errors = [*log_errors_per_step(points, of_null=of_null), *step.errors]
        logs.append(width(step.distance, errors))
    return math.exp(math.hypot(*logs))
