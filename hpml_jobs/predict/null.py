"""The null of every prediction: no change per GPU."""

import math
from collections.abc import Iterable

from hpml_jobs.predict.values import Observation, Place


def null_s(target: Place, measured: Iterable[Observation]) -> float | None:
    """Return an iteration if a GPU took as long for a sample as in the nearest measured place.

    It is that at the same batch with the most GPUs that are not more than the target's; without
    that batch, the one with the nearest batch. None without any.
    """
    smaller = [cell for cell in measured if cell.gpus <= target.gpus]
    if not smaller:
        return None
    nearest = min(
        smaller,
        key=lambda cell: (
            abs(math.log(cell.batch / target.batch)),
            -cell.gpus,
            abs(math.log(cell.accumulate / target.accumulate)),
        ),
    )
    ratio = target.batch * target.accumulate / (nearest.batch * nearest.accumulate)
    return nearest.step_s * ratio
