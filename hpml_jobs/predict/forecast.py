"""Predictions of targets, each with band, skill and remarks; or the reason why there is none."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from hpml_jobs.core.text import listed
from hpml_jobs.core.value import Value
from hpml_jobs.predict.model import (
    HOW,
    Axis,
    CannotPredictError,
    Estimate,
    Model,
    NoChange,
    Parts,
    Skill,
    Step,
    log_errors_per_step,
    skill_along,
    width,
)
from hpml_jobs.predict.network import BusSweep, measured_sweeps
from hpml_jobs.predict.place import Kind, Observation, Place, Size, Target, series_of, singles_of
from hpml_jobs.predict.rates import Rates
from hpml_jobs.predict.splits import AT_OTHER_BATCHES, FROM_ONE, Splits

COVERAGE = 0.9
"""The share of measurements that a band is meant to contain."""

FEWEST_POINTS = 3
"""Left-out cells from which on the null replaces a model whose errors are known from elsewhere."""

TOO_FEW = (
    "without the left-out cell the rest show no more than no change per GPU: the error is that of "
    "no change, and the band is wide; a third batch or size makes it narrower"
)
NO_LEFT_OUT = "too few cells to leave one out: neither error nor band is known"
ONE_SIZE = (
    "only one size of several GPUs was measured: the error is that of a model without "
    "interference, and the band is wide; a cell of another size makes it narrower"
)


class Method(StrEnum):
    """What a predicted time comes from."""

    MODEL = "model"
    NULL = "no change per GPU"


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


class Forecast(Value, frozen=True, kw_only=True):
    """The predictions and refusals of one group of equal conditions, in the order of the targets.

    `observations` are the measured places that they rest on.
    """

    conditions: dict[str, str]
    observations: tuple[Observation, ...]
    predictions: tuple[Prediction, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()


CommandOf = Callable[[Place], str | None]
"""Returns the command that submits the cell of a place; None where it is not known."""


def predict(
    observations: Sequence[Observation],
    targets: Iterable[Target],
    given: BusSweep | None = None,
    command_of: CommandOf = lambda _: None,
) -> list[Prediction | Refusal]:
    """Return a prediction or a refusal of each target, in their order.

    `observations` are cells of equal conditions, no two of them at one place; `given` is a sweep of
    messages from elsewhere. A refusal says what to measure, by a command where there is one.
    """
    series, sweeps = series_of(observations), measured_sweeps(observations)
    first: dict[tuple[Kind, str, Size], Place] = {}

    @cache
    def tested(kind: Kind, accumulate: int) -> Tested:
        of_kind = series.get(kind, ())
        cells = [*singles_of(observations, kind.path), *of_kind]
        if has_messages(of_kind):
            return Tested(Splits(cells, given, sweeps), cells)
        cells = [cell for cell in cells if cell.accumulate == accumulate]
        return Tested(Rates(cells), cells)

    def refusal(target: Target, fault: CannotPredictError) -> Refusal:
        """Return one command for all batches: a cell at one of them is enough for the others."""
        reason, wanted = str(fault), fault.wanted
        if wanted is None:
            return Refusal(target=target, reason=reason)
        wanted = first.setdefault((target.kind, reason, wanted.size), wanted)
        command = command_of(wanted)
        if command is None and not has_messages(series.get(target.kind, ())):
            nodes = f" nodes={wanted.nodes}" if wanted.nodes > 1 else ""
            reason = f"{reason}: measure gpus={wanted.gpus}{nodes} batch={wanted.batch}"
        return Refusal(target=target, reason=reason, command=command)

    def predicted(target: Target) -> Prediction | Refusal:
        try:
            return tested(target.kind, target.accumulate).predict(target)
        except CannotPredictError as fault:
            return refusal(target, fault)

    return [predicted(target) for target in targets]


def has_messages(cells: Iterable[Observation]) -> bool:
    """Return whether any cell has its messages; without one only rates are known."""
    return any(cell.messages for cell in cells)


class Tried(NamedTuple):
    """The errors that stand for a step; `untried` axes of it have no left-out cell.

    Where none of its axes has one, they are those of the first other axis that has, unless errors
    are known from elsewhere.
    """

    skill: Skill | None
    untried: tuple[Axis, ...]


class Tested:
    """A model of some cells, with its errors on those of them that were left out."""

    def __init__(self, model: Model, cells: Sequence[Observation]) -> None:
        """Take the model and its cells; they are left out when an axis is asked for."""
        self.model, self.null = model, NoChange(cells)
        self.along = cache(lambda axis: skill_along(model, axis))

    def predict(self, target: Target) -> Prediction:
        """Return the time of a target with its null, band, skill and remarks.

        That the null is better along one axis says nothing of another.

        Raises:
            CannotPredictError: what the model needs was not measured.
        """
        estimate, null_s = self.model.at(target), self.null.at(target).step_s
        tries = [self._tried(step) for step in estimate.steps]
        skill = _together([tried.skill for tried in tries if tried.skill])
        untried = [axis for tried in tries for axis in tried.untried]
        least = FEWEST_POINTS if any(step.errors for step in estimate.steps) else 1
        is_null = estimate.is_null or (
            skill is not None
            and skill.is_null_better
            and not untried
            and len(skill.points) >= least
        )
        step_s = null_s if is_null else estimate.step_s
        factor = _band_factor(estimate, tries, of_null=is_null)
        return Prediction(
            target=target,
            method=Method.NULL if is_null else Method.MODEL,
            step_s=step_s,
            model_s=estimate.step_s,
            null_s=null_s,
            low_s=None if factor is None else step_s / factor,
            high_s=None if factor is None else step_s * factor,
            skill=skill,
            parts=estimate.parts,
            remarks=(*_remarks(estimate, skill, untried), *estimate.remarks),
        )

    def _tried(self, step: Step) -> Tried:
        """Return the errors along the axes of a step together."""
        by_axis = {axis: self.along(axis) for axis in step.axes}
        skill = _together([along for along in by_axis.values() if along])
        if step.errors:
            return Tried(skill, ())
        with_batch = skill is not None and AT_OTHER_BATCHES in skill.how
        untried = tuple(
            axis
            for axis, along in by_axis.items()
            if along is None and not (with_batch and axis in (Axis.BATCH, Axis.TRANSFER))
        )
        others = (self.along(axis) for axis in HOW if axis not in by_axis)
        return Tried(skill or next((along for along in others if along), None), untried)


def _together(skills: Sequence[Skill]) -> Skill | None:
    if not skills:
        return None
    how = "; ".join(skill.how for skill in skills)
    return Skill(how=how, points=tuple(point for skill in skills for point in skill.points))


def _band_factor(estimate: Estimate, tries: Sequence[Tried], *, of_null: bool) -> float | None:
    """Return the upper end of the band over the prediction; None where no error is known.

    The widths of the steps and the doubt are independent of each other.
    """
    logs = [estimate.doubt]
    for step, tried in zip(estimate.steps, tries, strict=True):
        points = tried.skill.points if tried.skill else ()
        errors = [*log_errors_per_step(points, of_null=of_null), *step.errors]
        if not errors:
            return None
        logs.append(width(step.distance, errors))
    return math.exp(math.hypot(*logs))


def _remarks(estimate: Estimate, skill: Skill | None, untried: Sequence[Axis]) -> Iterator[str]:
    """Yield what the errors of a model say too little of, where none are known from elsewhere."""
    if any(step.errors for step in estimate.steps):
        return
    if skill is None:
        yield NO_LEFT_OUT
    elif FROM_ONE in skill.how:
        yield ONE_SIZE
    elif skill.is_null:
        yield TOO_FEW
    if untried and skill is not None:
        axes = listed(axis.value for axis in untried)
        yield f"no measured cell tries this: {axes}; the error is that of leaving out {skill.how}"
