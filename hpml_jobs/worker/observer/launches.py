"""How long the host takes to launch an iteration of a script, by the host's times of its events."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from hpml_jobs.worker.instruments.timing import Clock
from hpml_jobs.worker.observer.iterations import Iterations
from hpml_jobs.worker.observer.recording import STEPS, Event, Kind

AHEAD = 0.9
"""The host is ahead of its device where it needs less than this share of the device's time."""


def least_launch_s(iterations: Iterations) -> float | None:
    """Return the least time of the host from the batch of an iteration to the end of its step.

    Of the host's times the least is taken, since a host far ahead of the device waits for it. None
    where no iteration has a batch and a step.
    """
    launches_s = []
    for group in iterations.groups:
        batches = sum(event.kind is Kind.BATCH for event in group)
        if batches < iterations.accumulate:
            continue
        if launch_s := _launch_s(group):
            launches_s.append(launch_s)
    return min(launches_s, default=None)


def _launch_s(group: Sequence[Event]) -> float:
    """Return the seconds from the first batch to the last step, without those between batches."""
    launched_ns, total_ns, began_ns = 0, 0, None
    for event in group:
        if event.kind is Kind.BATCH and began_ns is None:
            began_ns = event.host_ns
        elif event.kind is Kind.REQUEST and began_ns is not None:
            total_ns += event.host_ns - began_ns
            began_ns = None
        elif event.kind in STEPS and began_ns is not None:
            launched_ns = total_ns + event.host_ns - began_ns
    return launched_ns / 1e9


def waits_for_device(clock: Clock, iterations: Iterations) -> bool:
    """Return whether the host waits for its device between batch and step, e.g. for `loss.item()`.

    It does where it needs the whole iteration, but is ahead in the forward passes, which are
    stamped in the instrumented window: its times are then not those of launches alone.
    """
    passes = [*_forward_passes(iterations)]
    host_s = sum(last.host_ns - first.host_ns for first, last in passes) / 1e9
    device_s = sum(clock.seconds(first.stamp, last.stamp) for first, last in passes)
    times = iterations.times
    work_s = float(np.median(times.step_s - times.stall_s))
    needs_all = (least_launch_s(iterations) or 0.0) > AHEAD * work_s
    return needs_all and host_s < AHEAD * device_s


def _forward_passes(iterations: Iterations) -> Iterator[tuple[Event, Event]]:
    for group in iterations.groups:
        passes = [
            event for event in group if event.kind in (Kind.FORWARD, Kind.FORWARDED)
        ]
        for first, last in pairwise(passes):
            if (first.kind, last.kind) == (Kind.FORWARD, Kind.FORWARDED):
                yield first, last
