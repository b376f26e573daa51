"""How the time of an iteration grows: with the GPUs of a node, with nodes, and at another batch.

These fits need nothing but the time of an iteration at some sizes, as a published rate gives it.
"""

import math
from collections.abc import Mapping

from hpml_jobs.core.text import percent_text
from hpml_jobs.predict import least_squares
from hpml_jobs.predict.model import Axis, Estimate, Step

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
(docs/choose_predict.md).
"""

PRIOR_POINTS = 8
"""Left-out places that `SPREAD` counts as."""


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
        step = Step((Axis.GPUS,), doublings, known_errors(Axis.GPUS))
        return Estimate(times_s[last], (step,), remarks=(remark,), is_null=True)
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
    step = Step((Axis.GPUS,), doublings, errors)
    return Estimate(step_s, (step,), doubt, remarks=tuple(remarks))


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
    point: it decides where two numbers of nodes are measured, and little where five are. The band
    grows with the doublings of nodes, not with their root.
    """
    counts = sorted(times_s)
    last_s = times_s[counts[-1]]
    fit = least_squares.fit(
        [*(_border(count) for count in counts), (0.0, 0.0, 1.0)],
        [*(times_s[count] for count in counts), GROWTH * last_s],
        [*(1 / (NOISE * times_s[count]) for count in counts), 1 / (GROWTH * last_s)],
    )
    step_s = fit.at(_border(nodes))
    remarks, doubt = [], 0.0
    if nodes > counts[-1] and len(counts) < FEWEST_SIZES:
        doubt = abs(math.log(step_s / _by_doublings(times_s, nodes)))
        remarks.append(
            f"growth beyond {counts[-1]} nodes is that of published benchmarks, "
            f"{percent_text(GROWTH)} per doubling, because {len(counts)} numbers of nodes are "
            f"measured: measure {2 * counts[-1]} nodes"
        )
    doublings = math.log2(nodes / largest_below(times_s, nodes))
    step = Step((Axis.NODES,), doublings**2, known_errors(Axis.NODES))
    return Estimate(step_s, (step,), doubt, remarks=tuple(remarks))


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
