"""Predictions of targets, each with band, skill and remarks; or the reason why there is none."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache

from hpml_jobs.core.text import listed
from hpml_jobs.predict.band import Band, band, distance, log_errors_per_step
from hpml_jobs.predict.model import (
    Estimate,
    Kind,
    Model,
    kind_of,
    series_of,
    singles_of,
)
from hpml_jobs.predict.network import Network, Size, size_of
from hpml_jobs.predict.skill import FROM_ONE, Cells, Tried, axes_of, null_s, tried
from hpml_jobs.predict.values import (
    Axis,
    CannotPredictError,
    Method,
    Observation,
    Place,
    Prediction,
    Refusal,
    Skill,
    Target,
)

CommandOf = Callable[[Place], str | None]
"""Returns the command that submits the cell of a place; None where it is not known."""

STALL_SHARE = 0.05
"""Share of an iteration in which waiting for data is remarked on."""

BEYOND_NODES = (
    "links that more than {nodes} nodes share (a spine) may be slower than the measured ones: no "
    "band contains that"
)
FAR = 4
"""Ratio to the measured size from which on a prediction is marked."""

TOO_FEW = (
    "without the left-out cell the rest show no more than no change per GPU: the error is that of "
    "no change, and the band is wide; a third batch or size makes it narrower"
)
WAITING = (
    "more than 5 % of the measured iteration is waiting for data, which is taken to stay: a faster "
    "loader makes it shorter"
)
NO_LEFT_OUT = "too few cells to leave one out: neither error nor band is known"
ONE_SIZE = (
    "only one size of several GPUs was measured: the error is that of a model without "
    "interference, and the band is wide; a cell of another size makes it narrower"
)


def predict_cells(
    observations: Sequence[Observation],
    targets: Iterable[Target],
    network: Network,
    command_of: CommandOf = lambda _: None,
) -> list[Prediction | Refusal]:
    """Return a prediction or a refusal of each target, in their order.

    `observations` are cells of equal conditions with their phases and messages; `network` has
    their sweeps, and one from elsewhere.
    """
    series = series_of(observations)

    @cache
    def cells_of(kind: Kind) -> Cells:
        single = singles_of(observations, kind.path)
        return Cells(tuple(series.get(kind, ())), tuple(single))

    @cache
    def model_of_kind(kind: Kind) -> Model:
        return Model(cells_of(kind).series, cells_of(kind).single, network)

    @cache
    def tried_along(kind: Kind, axes: tuple[Axis, ...]) -> Tried:
        return tried(axes, cells_of(kind), network)

    first: dict[tuple[Kind, str, Size], Place] = {}

    def command(kind: Kind, fault: CannotPredictError) -> str | None:
        """Return one command for all batches: a cell at one of them is enough for the others."""
        if fault.wanted is None:
            return None
        return command_of(first.setdefault((kind, str(fault), size_of(fault.wanted)), fault.wanted))

    def predicted(target: Target) -> Prediction | Refusal:
        kind = kind_of(target)
        try:
            estimate = model_of_kind(kind).estimate(target)
        except CannotPredictError as fault:
            return Refusal(target=target, reason=str(fault), command=command(kind, fault))
        cells = cells_of(kind)
        errors = tried_along(kind, axes_of(target, estimate.anchor, cells))
        return _prediction(target, estimate, cells, errors)

    return [predicted(target) for target in targets]


def _prediction(target: Target, estimate: Estimate, cells: Cells, errors: Tried) -> Prediction:
    """Return an estimate with its null, band, skill and remarks.

    That the null is better along one axis says nothing of another.
    """
    skill = errors.skill
    alike_s = null_s(target, cells.all) or estimate.step_s
    is_null = skill is not None and skill.is_null_better and not errors.untried
    step_s = alike_s if is_null else estimate.step_s
    ends = _band(target, estimate, step_s, skill, of_null=is_null)
    return Prediction(
        target=target,
        method=Method.NULL if is_null else Method.MODEL,
        step_s=step_s,
        model_s=estimate.step_s,
        null_s=alike_s,
        low_s=ends.low_s if ends else None,
        high_s=ends.high_s if ends else None,
        skill=skill,
        parts=estimate.parts,
        remarks=tuple(_remarks(target, estimate, errors)),
    )


def _band(
    target: Target, estimate: Estimate, step_s: float, skill: Skill | None, *, of_null: bool
) -> Band | None:
    """Return the band by left-out errors; the estimate's doubt is an independent error."""
    if skill is None:
        return None
    errors = log_errors_per_step(skill.points, of_null=of_null)
    ends = band(1.0, distance(target, estimate.anchor), errors)
    factor = math.exp(math.hypot(math.log(ends.high_s), estimate.doubt))
    return Band(step_s / factor, step_s * factor)


def _remarks(target: Target, estimate: Estimate, errors: Tried) -> Iterable[str]:
    """Yield what a prediction does not rest on."""
    yield from estimate.remarks
    skill = errors.skill
    if skill is None:
        yield NO_LEFT_OUT
    elif FROM_ONE in skill.how:
        yield ONE_SIZE
    elif skill.is_null:
        yield TOO_FEW
    if errors.untried and skill is not None:
        axes = listed(axis.value for axis in errors.untried)
        yield f"no measured cell tries this: {axes}; the error is that of leaving out {skill.how}"
    anchor = estimate.anchor
    if min(target.nodes, anchor.nodes) > 1 and target.gpus_per_node != anchor.gpus_per_node:
        yield (
            f"measured across nodes with {anchor.gpus_per_node} on each: another number on a node "
            "may share its links differently"
        )
    if target.nodes > anchor.nodes > 1:
        yield BEYOND_NODES.format(nodes=anchor.nodes)
    if target.gpus >= FAR * anchor.gpus:
        yield f"{target.gpus / anchor.gpus:g} times the largest measured size that it starts from"
    if (anchor.stall_s or 0.0) > STALL_SHARE * anchor.step_s:
        yield WAITING
