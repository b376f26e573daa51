"""An epoch of one rank from its stamps: its times, and how they are spread over its iterations."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hpml_jobs.core.formulas import closure
from hpml_jobs.core.measurements import Epoch, Phases, Role, Stalls, Steps
from hpml_jobs.core.outliers import BLOCKS, slow_iterations

if TYPE_CHECKING:
    from hpml_jobs.worker.instruments.timing import IterationTimes, Seconds, Window


def time_epoch(
    role: Role,
    window: "Window",
    times: "IterationTimes",
    samples: Sequence[int],
    phases: Phases | None = None,
) -> Epoch:
    """Return the times of an epoch; `samples` are those of each iteration."""
    epoch_s = window.epoch_s
    return Epoch(
        role=role,
        epoch_s=epoch_s,
        # Device and host clocks differ in the last digits: the part never exceeds the whole.
        stall_s=min(float(times.stall_s.sum()) + times.last_stall_s, epoch_s),
        iterations=len(samples),
        samples=sum(samples),
        loss=None,
        accuracy=None,
        steps=step_percentiles(times.step_s, samples),
        phases=phases,
        closure=closure(epoch_s, phases.parts_s) if phases else None,
        slow=slow_iterations(times.step_s.tolist(), times.stall_s.tolist()),
        stalls=spread_stalls(times),
        started_s=window.started_s,
    )


def spread_stalls(times: "IterationTimes") -> Stalls:
    """Return how the stall is spread over the batches of an epoch."""
    stall_s = times.stall_s if times.batch_stall_s is None else times.batch_stall_s
    return Stalls(
        first_s=float(stall_s[0]),
        p20_s=float(np.percentile(stall_s, 20)),
        last_s=times.last_stall_s,
        batches=len(stall_s),
        block_means_s=block_values(stall_s[1:], np.mean),
    )


def step_percentiles(step_s: "Seconds", samples: Sequence[int]) -> Steps:
    """Return percentiles of the iteration times, and medians of the first and the last tenth.

    `samples` are those of each iteration: the last batch may be smaller than the others.
    """
    tenth = max(1, len(step_s) // 10)
    p10_s, median_s, p90_s = (
        float(np.percentile(step_s, percent)) for percent in (10, 50, 90)
    )
    return Steps(
        median_s=median_s,
        p10_s=p10_s,
        p90_s=p90_s,
        first_tenth_s=float(np.median(step_s[:tenth])),
        last_tenth_s=float(np.median(step_s[-tenth:])),
        full_median_s=float(np.median(step_s[np.array(samples) == max(samples)])),
        quartile_width_s=float(np.percentile(step_s, 75) - np.percentile(step_s, 25)),
        block_medians_s=block_values(step_s, np.median),
    )


def block_values(
    seconds: "Seconds", statistic: Callable[["Seconds"], Any]
) -> tuple[float, ...] | None:
    """Return a statistic of ten consecutive blocks; None with fewer values than blocks."""
    if len(seconds) < BLOCKS:
        return None
    return tuple(float(statistic(block)) for block in np.array_split(seconds, BLOCKS))
