"""Predictions from times of iterations alone, as rates give them: no phases were measured.

A target inside a node needs sizes inside a node, one across nodes a cell on two of them. At a batch
of which only smaller sizes are measured, what more GPUs cost is taken from another batch.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from hpml_jobs.core.text import percent_text
from hpml_jobs.predict.band import band
from hpml_jobs.predict.growth import NOISE, SPREAD, at_batch, in_node, known_errors, over_nodes
from hpml_jobs.predict.model import (
    BEYOND_NODES,
    FAR,
    HOW,
    Axis,
    CannotPredictError,
    Estimate,
    LeaveOut,
    Step,
)
from hpml_jobs.predict.place import Observation, Target, changed


class Rates(NamedTuple):
    """The model of cells at one accumulation, of which no two are at one place.

    With an axis it predicts along that one alone, and no more than it knows.
    """

    cells: Sequence[Observation]
    along: Axis | None = None

    def at(self, target: Target) -> Estimate:
        """Return the time of a target.

        Raises:
            CannotPredictError: what it needs was not measured.
        """
        estimate = _estimate(self.cells, target)
        if self.along and (estimate.is_null or estimate.axes != (self.along,)):
            raise CannotPredictError(f"not along {self.along} alone")
        return estimate

    def trials(self, axis: Axis) -> Iterator[tuple[str, Iterator[LeaveOut]]]:
        """Yield the way to leave out cells along an axis: each from smaller ones at its batch.

        At another batch, it is from all of these, too.
        """
        if axis in SPREAD:
            yield HOW[axis], self._left_out(axis)

    def _left_out(self, axis: Axis) -> Iterator[LeaveOut]:
        for cell in self.cells:
            rest = [
                other
                for other in self.cells
                if (other.batch != cell.batch and axis is Axis.TRANSFER)
                or (other.batch == cell.batch and other.gpus < cell.gpus)
            ]
            yield LeaveOut(cell, rest, Rates(rest, axis))


def _estimate(observations: Sequence[Observation], target: Target) -> Estimate:
    """Return the time of a target by the shortest way to it."""
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
            doublings = abs(math.log2(target.batch / batch))
            step = Step((Axis.TRANSFER,), doublings, known_errors(Axis.TRANSFER))
            here = at_batch(base.step_s, sizes[base.gpus, base.nodes], there.step_s)
            way = there._replace(
                step_s=here.step_s,
                steps=(*there.steps, step),
                doubt=math.hypot(there.doubt, here.doubt),
                remarks=(*there.remarks, *_transfer_remarks(target, batch, step, here.doubt)),
            )
            ways.append(way)
    return min(ways, key=lambda way: len(way.steps), default=None)


def _transfer_remarks(target: Target, batch: int, step: Step, doubt: float) -> Iterator[str]:
    """Yield that the cost of another batch decides, where the other form is outside the band."""
    if doubt > math.log(band(1.0, step.distance, step.errors).high_s):
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
            return Estimate(observation.step_s)
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
    remarks = _remarks(times_s, size, "nodes" if across else "GPUs")
    return grown._replace(remarks=(*grown.remarks, *remarks))


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
