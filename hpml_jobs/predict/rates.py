"""Predictions from times of iterations alone, as rates give them: no phases were measured.

A target inside a node needs sizes inside a node, one across nodes a cell on two of them. At a batch
of which only smaller sizes are measured, what more GPUs cost is taken from another batch.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from hpml_jobs.core.text import percent_text
from hpml_jobs.predict.band import Band, band, log_errors_per_step
from hpml_jobs.predict.forecast import BEYOND_NODES, FAR, CommandOf
from hpml_jobs.predict.growth import NOISE, at_batch, in_node, over_nodes
from hpml_jobs.predict.skill import HOW
from hpml_jobs.predict.values import (
    Axis,
    CannotPredictError,
    LeftOut,
    Method,
    Observation,
    Prediction,
    Refusal,
    Skill,
    Target,
    changed,
)

SPREAD: Mapping[Axis, float] = {Axis.GPUS: 0.03, Axis.NODES: 0.05, Axis.TRANSFER: 0.02}
"""The error per doubling before any place of a study was left out.

In a node and across nodes that of published tables, at another batch that of three measured times
(docs/choose_predict.md).
"""

PRIOR_POINTS = 8
"""Left-out places that `SPREAD` counts as."""

FEWEST_POINTS = 3
"""Left-out places from which on no change per GPU can be called as good as the model."""


class Step(NamedTuple):
    """A part of the way from the measured places to a target."""

    axis: Axis
    doublings: float

    @property
    def distance(self) -> float:
        """The distance whose root the band grows with: across nodes it grows with doublings."""
        return self.doublings**2 if self.axis is Axis.NODES else self.doublings


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A time of an iteration with what it rests on: the way to it, and its fit (see `Growth`)."""

    step_s: float
    null_s: float
    steps: tuple[Step, ...]
    residuals: tuple[float, ...] = ()
    doubt: float = 0.0
    remarks: tuple[str, ...] = ()
    is_null: bool = False


LeftOuts = Mapping[Axis, Sequence[LeftOut]]


def predict_rates(
    observations: Sequence[Observation],
    targets: Iterable[Target],
    command_of: CommandOf = lambda _: None,
) -> list[Prediction | Refusal]:
    """Return a prediction or a refusal of each target, in their order.

    `observations` differ in GPUs, nodes, batch and accumulation only, but for the plain loop on one
    GPU. No two are at one place. A refusal says what to measure, by a command where there is one.
    """
    by_accumulation: dict[int, list[Observation]] = {}
    for observation in observations:
        by_accumulation.setdefault(observation.accumulate, []).append(observation)

    @cache
    def errors_at(accumulate: int) -> LeftOuts:
        return {axis: left_out(by_accumulation.get(accumulate, ()), axis) for axis in SPREAD}

    def predicted(target: Target) -> Prediction | Refusal:
        here = by_accumulation.get(target.accumulate, ())
        try:
            return _predicted(here, target, errors_at(target.accumulate))
        except CannotPredictError as fault:
            return _refused(target, fault, command_of)

    return [predicted(target) for target in targets]


def _refused(target: Target, fault: CannotPredictError, command_of: CommandOf) -> Refusal:
    """Return the refusal of a target; without a command its reason names the row to add."""
    reason, wanted = str(fault), fault.wanted
    command = command_of(wanted) if wanted else None
    if wanted and command is None:
        nodes = f" nodes={wanted.nodes}" if wanted.nodes > 1 else ""
        reason = f"{reason}: measure gpus={wanted.gpus}{nodes} batch={wanted.batch}"
    return Refusal(target=target, reason=reason, command=command)


def _predicted(observations: Sequence[Observation], target: Target, errors: LeftOuts) -> Prediction:
    estimate = estimated(observations, target)
    axes = [step.axis for step in estimate.steps if errors[step.axis]]
    points = tuple(point for axis in axes for point in errors[axis])
    skill = Skill(how="; ".join(HOW[axis] for axis in axes), points=points) if points else None
    as_good = skill is not None and len(points) >= FEWEST_POINTS and skill.is_null_better
    is_null = estimate.is_null or as_good
    step_s = estimate.null_s if is_null else estimate.step_s
    ends = _band(step_s, estimate, errors, of_null=is_null)
    return Prediction(
        target=target,
        method=Method.NULL if is_null else Method.MODEL,
        step_s=step_s,
        model_s=estimate.step_s,
        null_s=estimate.null_s,
        low_s=ends.low_s,
        high_s=ends.high_s,
        skill=skill,
        remarks=estimate.remarks,
    )


def _band(step_s: float, estimate: Estimate, errors: LeftOuts, *, of_null: bool) -> Band:
    """Return the band of a prediction: those of its steps and doubt, independent of each other."""
    square = estimate.doubt**2
    for step in estimate.steps:
        spread = log_errors_per_step(errors[step.axis], of_null=of_null)
        if step.axis is not Axis.TRANSFER:
            spread += estimate.residuals
        ends = band(1.0, step.distance, [*spread, *[SPREAD[step.axis]] * PRIOR_POINTS])
        square += math.log(ends.high_s) ** 2
    factor = math.exp(math.sqrt(square))
    return Band(step_s / factor, step_s * factor)


def left_out(observations: Sequence[Observation], axis: Axis) -> tuple[LeftOut, ...]:
    """Return the measured places that the model predicts along an axis, from smaller ones."""
    return tuple(_left_out(observations, axis))


def _left_out(observations: Sequence[Observation], axis: Axis) -> Iterator[LeftOut]:
    for observation in observations:
        others = [
            other
            for other in observations
            if (other.batch != observation.batch and axis is Axis.TRANSFER)
            or (other.batch == observation.batch and other.gpus < observation.gpus)
        ]
        try:
            estimate = estimated(others, changed(observation))
        except CannotPredictError:
            continue
        if [s.axis for s in estimate.steps] == [axis] and not estimate.is_null:
            yield LeftOut(
                observation=observation,
                model_s=estimate.step_s,
                null_s=estimate.null_s,
                distance=estimate.steps[0].distance,
            )


def estimated(observations: Sequence[Observation], target: Target) -> Estimate:
    """Return the time of a target.

    Raises:
        CannotPredictError: what it needs was not measured.
    """
    if target.gpus % target.nodes:
        raise CannotPredictError(
            f"{target.gpus} GPUs cannot be shared equally by {target.nodes} nodes"
        )
    smaller = _smaller(observations, target)
    if not smaller:
        times = "" if target.accumulate == 1 else f" and accumulate={target.accumulate}"
        raise CannotPredictError(
            f"nothing smaller than {target.gpus} GPUs is measured at batch {target.batch}{times}",
            changed(target, gpus=1, nodes=1),
        )
    transferred = _from_another_batch(observations, target, smaller)
    if transferred and len(transferred.steps) == 1:
        return transferred
    try:
        return _grown([o for o in observations if o.batch == target.batch], target)
    except CannotPredictError:
        if transferred:
            return transferred
        raise


def _smaller(observations: Iterable[Observation], target: Target) -> list[Observation]:
    """Return the observations at the batch of the target on fewer GPUs, the largest last."""
    fewer = [o for o in observations if o.batch == target.batch and o.gpus < target.gpus]
    return sorted(fewer, key=lambda o: o.gpus)


def _from_another_batch(
    observations: Sequence[Observation], target: Target, smaller: Sequence[Observation]
) -> Estimate | None:
    """Return the time from the nearest other batch that has, or lets predict, the target's size.

    A batch at which this size is measured is preferred.
    """
    by_batch: dict[int, list[Observation]] = {}
    for observation in observations:
        by_batch.setdefault(observation.batch, []).append(observation)
    by_batch.pop(target.batch)
    ways = []
    for batch in sorted(by_batch, key=lambda b: (abs(math.log(b / target.batch)), -b)):
        sizes = {(o.gpus, o.nodes): o.step_s for o in by_batch[batch]}
        base = next((o for o in reversed(smaller) if (o.gpus, o.nodes) in sizes), None)
        there = _there(by_batch[batch], changed(target, batch=batch))
        if base and there:
            step = Step(Axis.TRANSFER, abs(math.log2(target.batch / batch)))
            grown = at_batch(base.step_s, sizes[base.gpus, base.nodes], there.step_s)
            way = replace(
                there,
                step_s=grown.step_s,
                null_s=smaller[-1].step_s,
                steps=(*there.steps, step),
                doubt=math.hypot(there.doubt, grown.doubt),
                remarks=(*there.remarks, *_transfer_remarks(target, batch, step, grown.doubt)),
            )
            ways.append(way)
    return min(ways, key=lambda way: len(way.steps), default=None)


def _transfer_remarks(target: Target, batch: int, step: Step, doubt: float) -> Iterator[str]:
    """Yield that the cost of another batch decides, where the other form is outside the band."""
    if doubt > math.log(band(1.0, step.doublings, [SPREAD[step.axis]] * PRIOR_POINTS).high_s):
        share = percent_text(-math.expm1(-doubt) if target.batch < batch else math.expm1(doubt))
        yield (
            f"what more GPUs cost is taken over from batch {batch} in seconds: if it is in "
            f"proportion to the batch, this time is {share} "
            f"{'shorter' if target.batch < batch else 'longer'}: "
            f"measure {target.gpus} GPUs at batch {target.batch}"
        )


def _there(series: Sequence[Observation], target: Target) -> Estimate | None:
    """Return the time of a target at its batch: as measured, or from other sizes."""
    for observation in series:
        if (observation.gpus, observation.nodes) == (target.gpus, target.nodes):
            return Estimate(step_s=observation.step_s, null_s=observation.step_s, steps=())
    try:
        return _grown(series, target)
    except CannotPredictError:
        return None


def _grown(series: Sequence[Observation], target: Target) -> Estimate:
    """Return the time from other sizes at the batch of the target.

    Raises:
        CannotPredictError: they do not reach it.
    """
    across = target.nodes > 1
    alike = [
        o for o in series if (o.gpus_per_node == target.gpus_per_node if across else o.nodes == 1)
    ]
    times_s = {(o.nodes if across else o.gpus): o.step_s for o in alike}
    size = target.nodes if across else target.gpus
    _check_sizes(series, target, sorted(times_s))
    grown = (over_nodes if across else in_node)(times_s, size)
    below = max((count for count in times_s if count < size), default=min(times_s))
    return Estimate(
        step_s=grown.step_s,
        null_s=times_s[below],
        steps=(Step(Axis.NODES if across else Axis.GPUS, abs(math.log2(size / below))),),
        residuals=grown.residuals,
        doubt=grown.doubt,
        remarks=(*grown.remarks, *_remarks(times_s, size, "nodes" if across else "GPUs")),
        is_null=grown.is_null,
    )


def _check_sizes(series: Sequence[Observation], target: Target, counts: Sequence[int]) -> None:
    """Refuse a target that the measured numbers of GPUs, or of nodes, do not reach."""
    each = target.gpus_per_node
    if target.nodes > 1 and (not counts or counts[-1] == 1):
        alike = f" with {each} GPUs on each" if any(o.nodes > 1 for o in series) else ""
        raise CannotPredictError(
            f"no cell on two nodes{alike} is measured, and one node says nothing about a network",
            changed(target, gpus=2 * each, nodes=2),
        )
    if len(counts) < 2:
        gpus = each if target.nodes > 1 else 2 if counts == [1] else 1
        raise CannotPredictError(
            f"one size is measured at batch {target.batch}, which does not show how time grows",
            changed(target, gpus=gpus, nodes=1),
        )


def _remarks(times_s: Mapping[int, float], size: int, unit: str) -> Iterator[str]:
    """Yield where measured times contradict the model, and long steps."""
    counts = sorted(times_s)
    for fewer, more in itertools.pairwise(counts):
        fall = 1 - times_s[more] / times_s[fewer]
        if fall > 3 * NOISE:
            yield (
                f"an iteration on {more} {unit} took {fall:.1%} less than on {fewer}: repeat both"
            )
    if unit == "nodes" and size > counts[-1]:
        yield BEYOND_NODES.format(nodes=counts[-1])
    if size >= FAR * counts[-1]:
        yield f"{size / counts[-1]:g} times the largest measured number of {unit}"
