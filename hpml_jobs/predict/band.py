"""The band of a prediction: how wide the errors on left-out places say it must be.

Relative errors are taken as log(measured / predicted). They are assumed to grow with the square
root of the distance, as the sum of independent errors per step does: one doubling of GPUs, batch or
micro-steps is a distance of 1. What is missing beyond the measured nodes (the latency of a ring, a
spine) is no independent error: it grows in proportion to the doublings of nodes or faster. So n of
them, with those of the GPUs on them, are a distance of 2 n^2. Each left-out place gives one
estimate of the error per step, error / sqrt(distance), and the band of a target at distance d is

    predicted x exp(+- t x s x sqrt(d)),    s = max(root mean square of the estimates, FLOOR),

with t the 95 % quantile of Student's t for as many degrees of freedom as there were left-out
places, since s is not known but estimated from them: from one place the band is more than three
times as wide as from many.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hpml_jobs.predict.left_out import LeftOut
from hpml_jobs.predict.place import Place

FLOOR = 0.01
"""The least error per step: what two launches of one cell differ by on a quiet machine."""

_QUANTILES = (
    *(6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812),
    *(1.796, 1.782, 1.771, 1.761, 1.753, 1.746, 1.740, 1.734, 1.729, 1.725),
)
"""95 % quantiles of Student's t for 1, 2, … 20 degrees of freedom."""


class Band(NamedTuple):
    """The ends of a band, in seconds per iteration."""

    low_s: float
    high_s: float


def distance(target: Place, nearest: Place) -> float:
    """Return how far a target is from a measured place: the sum of doublings and halvings.

    Doublings of GPUs, of the batch and of micro-steps count alike; beyond one doubling of nodes,
    those of nodes and GPUs count as often as nodes double.

    >>> from hpml_jobs.core.strategies import Strategy
    >>> eight = Place(gpus=8, batch=32, strategy=Strategy.DDP)
    >>> distance(Place(gpus=32, batch=64, strategy=Strategy.DDP, nodes=4), eight)
    9.0
    """
    ratios = (target.batch / nearest.batch, target.accumulate / nearest.accumulate)
    gpus, nodes, *others = (
        abs(math.log2(ratio))
        for ratio in (target.gpus / nearest.gpus, target.nodes / nearest.nodes, *ratios)
    )
    return (gpus + nodes) * max(nodes, 1.0) + sum(others)


def band(predicted_s: float, steps: float, errors: Sequence[float], floor: float = FLOOR) -> Band:
    """Return the band of a prediction at a distance of `steps`.

    `errors` are the errors per step, `log_errors_per_step`; there is at least one.

    >>> [round(end, 3) for end in band(1.0, 4.0, [0.02] * 20)]
    [0.933, 1.071]
    >>> [round(end, 3) for end in band(1.0, 1.0, [0.02])]
    [0.881, 1.135]
    """
    spread = max(math.sqrt(math.fsum(e * e for e in errors) / len(errors)), floor)
    quantile = _QUANTILES[min(len(errors), len(_QUANTILES)) - 1]
    factor = math.exp(quantile * spread * math.sqrt(max(steps, 1.0)))
    return Band(predicted_s / factor, predicted_s * factor)


def log_errors_per_step(points: Iterable[LeftOut], *, of_null: bool = False) -> list[float]:
    """Return the logarithms of measured over predicted per step, of the model or of the null."""
    return [
        math.log(point.observation.step_s / (point.null_s if of_null else point.model_s))
        / math.sqrt(max(point.distance, 1.0))
        for point in points
    ]
