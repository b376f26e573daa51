"""The model of iterations on more GPUs, from measured times of iterations alone.

A target inside a node needs sizes inside a node, one across nodes a cell on two of them. At a batch
of which only smaller sizes are measured, what more GPUs cost is taken from another batch. The fits
need nothing but the time of an iteration at some sizes, as a published rate gives it.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from hpml_jobs.core.text import percent_text
from hpml_jobs.extras.predict import least_squares
from hpml_jobs.extras.predict.model import (
    Axis,
    CannotPredictError,
    Estimate,
    ModelStep,
    width,
)
from hpml_jobs.extras.predict.place import MeasuredPlace, Target, alone, changed

FAR = 4
"""Ratio to the measured size from which on a prediction is marked."""

BEYOND_NODES = (
    "links that more than {nodes} nodes share (a spine) may be slower than the measured ones: no "
    "band contains that"
)

FEWEST_SIZES = 3
"""Sizes that a fit of three coefficients needs."""

LEAST_OF_TWO = 4
"""GPUs of the larger of two sizes from which on a ring may be extrapolated.

On 4 GPUs a ring passes 3/4 of the bytes that it can ever pass. On 2 it is half, and most of what
was added is the step from no exchange to one.
"""

NOISE = 0.01
"""What two runs of one cell differ by."""

GROWTH = 0.015
"""Growth of an iteration with each doubling of nodes, where nothing was measured.

Two of the three models of Horovod's benchmark reach 90 % efficiency on 512 P100 in 128 nodes:
ln(1 / 0.9) / log2(128) = 1.5 % (the third one, VGG-16, 5.5 %).
"""

SPREAD: Mapping[Axis, float] = {Axis.GPUS: 0.03, Axis.NODES: 0.05, Axis.TRANSFER: 0.02}
"""The error per doubling before any place of a study was left out.

In a node and across nodes that of published tables, at another batch that of three measured times
(docs/predict.md).
"""

PRIOR_POINTS = 8
"""Left-out places that `SPREAD` counts as."""


def estimate(observations: Sequence[MeasuredPlace], target: Target) -> Estimate:
    """Return the time of a target by the shortest way to it.

    `observations` are those of its series and the plain loop, of which no two are at one place.

    Raises:
        CannotPredictError: what it needs was not measured.
    """
    _check_nodes(target)
    smaller = _smaller(observations, target)
    if not smaller:
        measured = [o for o in observations if o.gpus < target.gpus]
        smallest = min(measured, key=lambda o: o.gpus, default=alone(target))
        raise CannotPredictError(
            f"nothing smaller than {target.gpus} GPUs is measured at batch {target.batch}",
            changed(smallest, batch=target.batch),
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


def _check_nodes(target: Target) -> None:
    if target.gpus % target.nodes:
        raise CannotPredictError(
            f"{target.gpus} GPUs cannot be shared equally by {target.nodes} nodes"
        )
    most_nodes = target.strategy.traffic.max_nodes
    if most_nodes is not None and target.nodes > most_nodes:
        raise CannotPredictError(f"{target.strategy.value} runs on one node")


def _smaller(
    observations: Iterable[MeasuredPlace], target: Target
) -> list[MeasuredPlace]:
    """Return the observations at the batch of the target on fewer GPUs, the largest last."""
    alike = [o for o in observations if o.batch == target.batch]
    fewer = [o for o in alike if o.gpus < target.gpus]
    return sorted(fewer, key=lambda o: o.gpus)


def _from_another_batch(
    observations: Sequence[MeasuredPlace],
    target: Target,
    smaller: Sequence[MeasuredPlace],
) -> Estimate | None:
    """Return the time from the nearest other batch that has, or lets predict, the target's size.

    A batch at which this size is measured is preferred.
    """
    by_batch: dict[int, list[MeasuredPlace]] = {}
    for observation in observations:
        by_batch.setdefault(observation.batch, []).append(observation)
    by_batch.pop(target.batch)
    ways = []

    def nearness(batch: int) -> tuple[float, int]:
        return abs(math.log(batch / target.batch)), -batch

    for batch in sorted(by_batch, key=nearness):
        sizes = {(o.gpus, o.nodes): o.step_s for o in by_batch[batch]}
        base = next((o for o in reversed(smaller) if (o.gpus, o.nodes) in sizes), None)
        there = _there(by_batch[batch], changed(target, batch=batch))
        if base and there:
            doublings = abs(math.log2(target.batch / batch))
            step = ModelStep(Axis.TRANSFER, doublings, known_errors(Axis.TRANSFER))
            other_base_s = sizes[base.gpus, base.nodes]
            here = at_batch(base.step_s, other_base_s, there.step_s)
            other_times_s = [
                at_batch(base.step_s, other_base_s, time_s).step_s
                for time_s in there.other_times_s
            ]
            way = there._replace(
                step_s=here.step_s,
                other_times_s=tuple(other_times_s),
                steps=(*there.steps, step),
                doubt=math.hypot(there.doubt, here.doubt),
                remarks=(
                    *there.remarks,
                    *_transfer_remarks(target, batch, step, here.doubt),
                ),
            )
            ways.append(way)
    return min(ways, key=lambda way: len(way.steps), default=None)


def _transfer_remarks(
    target: Target, batch: int, step: ModelStep, doubt: float
) -> Iterator[str]:
    """Yield that the cost of another batch decides, where the other form is outside the band."""
    if doubt <= width(step.distance, step.errors):
        return
    if target.batch < batch:
        share, word = -math.expm1(-doubt), "shorter"
    else:
        share, word = math.expm1(doubt), "longer"
    yield (
        f"what more GPUs cost is taken over from batch {batch} in seconds: if it is in "
        f"proportion to the batch, this time is {percent_text(share)} {word}: "
        f"measure {target.gpus} GPUs at batch {target.batch}"
    )


def _there(series: Sequence[MeasuredPlace], target: Target) -> Estimate | None:
    """Return the time of a target at its batch: as measured, or from other sizes."""
    for observation in series:
        if (observation.gpus, observation.nodes) == (target.gpus, target.nodes):
            return Estimate(observation.step_s)
    try:
        return _grown(series, target)
    except CannotPredictError:
        return None


def _grown(series: Sequence[MeasuredPlace], target: Target) -> Estimate:
    """Return the time from other sizes at the batch of the target.

    Raises:
        CannotPredictError: they do not reach it.
    """
    if target.nodes > 1:
        times_s = {
            o.nodes: o.step_s for o in series if o.gpus_per_node == target.gpus_per_node
        }
        _check_sizes(series, target, sorted(times_s))
        grown = over_nodes(times_s, target.nodes)
        remarks = _remarks(times_s, target.nodes, "nodes")
    else:
        times_s = {o.gpus: o.step_s for o in series if o.nodes == 1}
        _check_sizes(series, target, sorted(times_s))
        grown = in_node(times_s, target.gpus)
        remarks = _remarks(times_s, target.gpus, "GPUs")
    return grown._replace(remarks=(*grown.remarks, *remarks))


def _check_sizes(
    series: Sequence[MeasuredPlace], target: Target, counts: Sequence[int]
) -> None:
    """Refuse a target that the measured numbers of GPUs, or of nodes, do not reach."""
    per_node = target.gpus_per_node
    if target.nodes > 1 and (not counts or counts[-1] == 1):
        alike = (
            f" with {per_node} GPUs on each" if any(o.nodes > 1 for o in series) else ""
        )
        raise CannotPredictError(
            f"no cell on two nodes{alike} is measured, and one node says nothing about a network",
            changed(target, gpus=2 * per_node, nodes=2),
        )
    if len(counts) < 2:
        gpus = 2 if counts == [1] else 1
        if target.nodes > 1:
            gpus = per_node
        raise CannotPredictError(
            f"one size is measured at batch {target.batch}, which does not show how time grows",
            alone(target) if gpus == 1 else changed(target, gpus=gpus, nodes=1),
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


def known_errors(axis: Axis) -> tuple[float, ...]:
    """Return the errors per doubling that are known of an axis."""
    return (SPREAD[axis],) * PRIOR_POINTS


def in_node(times_s: Mapping[int, float], gpus: int) -> Estimate:
    """Return the time on `gpus` GPUs of one node from those on other numbers of them.

    t(N) = c + a (N - 1) / N + d (N - 1): computation, and a ring all-reduce whose bytes and
    messages grow like this (alpha-beta model; traffic through one shared link grows like the last
    term too). Two sizes cannot tell the last two apart: d is 0, and beyond 2 GPUs the last time
    stays.
    """
    sizes = sorted(times_s)
    last = sizes[-1]
    doublings = abs(math.log2(gpus / largest_below(times_s, gpus)))
    beyond, is_short = gpus > last, len(sizes) < FEWEST_SIZES
    if beyond and is_short and last < LEAST_OF_TWO:
        remark = f"two sizes up to {last} GPUs show no trend: this is the time on {last} GPUs"
        step = ModelStep(Axis.GPUS, doublings, known_errors(Axis.GPUS))
        most_s = _more_gpus(times_s, gpus)
        return Estimate(
            times_s[last],
            (step,),
            other_times_s=(most_s,),
            remarks=(remark,),
            is_null=True,
        )
    width = min(len(sizes), FEWEST_SIZES)
    fit = least_squares.fit(
        [_ring(size)[:width] for size in sizes],
        [times_s[size] for size in sizes],
        [1 / times_s[size] for size in sizes],
    )
    step_s = fit.at(_ring(gpus)[:width])
    remarks, doubt = [], 0.0
    if beyond and is_short:
        remarks.append(
            "two sizes cannot show whether the time levels off, as it is taken to: measure a third"
        )
    elif beyond:
        linear_s = fit.coefficients[-1] * (gpus - last)
        if linear_s > NOISE * fit.at(_ring(last)):
            remarks.append(_no_levelling(linear_s / step_s, last, gpus))
            doubt = abs(math.log(step_s / _by_doublings(times_s, gpus)))
    errors = (*_residuals(fit, len(sizes)), *known_errors(Axis.GPUS))
    step = ModelStep(Axis.GPUS, doublings, errors)
    other_times_s = (times_s[last], _more_gpus(times_s, gpus)) if beyond else ()
    return Estimate(step_s, (step,), doubt, other_times_s, tuple(remarks))


def _more_gpus(times_s: Mapping[int, float], gpus: int) -> float:
    """Return the time if each further GPU adds what the last ones added, as a shared link does.

    A few sizes in a node rule out neither that nor no change. In tests/data/published a band that
    holds both contains nine of ten times, each size from smaller ones; without them five of six.
    """
    *_, fewer, more = sorted(times_s)
    each_s = max(0.0, times_s[more] - times_s[fewer]) / (more - fewer)
    return times_s[more] + each_s * (gpus - more)


def _more_nodes(times_s: Mapping[int, float], nodes: int) -> float:
    """Return the time if each further doubling of nodes lengthens it as the last one did."""
    *_, fewer, more = sorted(times_s)
    growth = max(0.0, math.log(times_s[more] / times_s[fewer]))
    per_doubling = growth / math.log2(more / fewer)
    doublings = math.log2(nodes / more)
    return times_s[more] * math.exp(per_doubling * doublings)


def largest_below(times_s: Mapping[int, float], count: int) -> int:
    """Return the largest measured number of GPUs or nodes below another, else the smallest."""
    return max((other for other in times_s if other < count), default=min(times_s))


def _by_doublings(times_s: Mapping[int, float], count: int) -> float:
    """Return the time on a number of GPUs or nodes by a constant and growth with each doubling."""
    fit = least_squares.fit(
        [(1.0, math.log2(size)) for size in times_s],
        list(times_s.values()),
        [1 / step_s for step_s in times_s.values()],
    )
    return fit.at((1.0, math.log2(count)))


def _ring(gpus: int) -> tuple[float, float, float]:
    return 1.0, (gpus - 1) / gpus, gpus - 1.0


def _no_levelling(share: float, last: int, gpus: int) -> str:
    return (
        f"the time of an iteration does not level off up to {last} GPUs: {percent_text(share)} of "
        f"this time is extrapolated in proportion to the GPUs, and a full link costs more: "
        f"measure {gpus} GPUs"
    )


def _residuals(fit: least_squares.Fit, points: int) -> tuple[float, ...]:
    """Return residuals whose mean square is that of a fit of relative errors."""
    free = points - sum(c > 0 for c in fit.coefficients)
    return (math.sqrt(fit.squares / free),) * free if free > 0 else ()


def over_nodes(times_s: Mapping[int, float], nodes: int) -> Estimate:
    """Return the time on `nodes` whole nodes from those on other numbers of nodes.

    t(n) = c + s [n > 1] + b log2 n: computation with the exchange inside a node, the step to a
    network, and trees and late nodes. That b is `GROWTH` of the time counts as one more measured
    point: it decides where two numbers of nodes are measured, and little where five are. The last
    growth that was measured across nodes is the least one. The band grows with the doublings of
    nodes, not with their root.
    """
    counts = sorted(times_s)
    last_s = times_s[counts[-1]]
    usual_growth_s = GROWTH * last_s
    values_s = [times_s[count] for count in counts]
    weights = [1 / (NOISE * value_s) for value_s in values_s]
    fit = least_squares.fit(
        [*(_border(count) for count in counts), (0.0, 0.0, 1.0)],
        [*values_s, usual_growth_s],
        [*weights, 1 / usual_growth_s],
    )
    step_s = fit.at(_border(nodes))
    remarks, doubt = [], 0.0
    other_times_s: tuple[float, ...] = ()
    if nodes > counts[-1]:
        grown_s = _more_nodes(times_s, nodes)
        other_times_s = (last_s, grown_s)
        if counts[-2] > 1:  # the growth is across nodes, without the step to a network
            step_s = max(step_s, grown_s)
    if nodes > counts[-1] and len(counts) < FEWEST_SIZES:
        doubt = abs(math.log(step_s / _by_doublings(times_s, nodes)))
        remarks.append(
            f"growth beyond {counts[-1]} nodes is that of published benchmarks, "
            f"{percent_text(GROWTH)} per doubling, because {len(counts)} numbers of nodes are "
            f"measured: measure {2 * counts[-1]} nodes"
        )
    doublings = math.log2(nodes / largest_below(times_s, nodes))
    step = ModelStep(Axis.NODES, doublings**2, known_errors(Axis.NODES))
    return Estimate(step_s, (step,), doubt, other_times_s, tuple(remarks))


def _border(nodes: int) -> tuple[float, float, float]:
    return 1.0, float(nodes > 1), math.log2(nodes)


def at_batch(base_s: float, other_base_s: float, other_s: float) -> Estimate:
    """Return the time at a batch from that of fewer GPUs and what more GPUs cost at another batch.

    t(N, b) = t(g, b) + [t(N, b') - t(g, b')]. It holds while the exchange is as exposed at both
    batches. More GPUs never cost less. Where more GPUs slow computation or its input down, the cost
    is proportional to the batch instead, t(N, b) = t(g, b) t(N, b') / t(g, b'): that is the doubt.

    >>> round(at_batch(0.20, 0.40, 0.43).step_s, 9)
    0.23
    """
    step_s = base_s + max(0.0, other_s - other_base_s)
    in_proportion_s = base_s * max(1.0, other_s / other_base_s)
    return Estimate(step_s, doubt=abs(math.log(step_s / in_proportion_s)))
