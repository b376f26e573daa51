"""The all-reduce microbenchmark: time by message size while the devices do nothing else."""

import time
from collections.abc import Iterable, Sequence
from statistics import median

import numpy as np
import torch
import torch.distributed as dist

from hpml_jobs.core.measurements import Microbenchmark, MicrobenchmarkPoint
from hpml_jobs.worker.instruments.timing import Devices, clock_for, synchronize

WARMUPS, TRIALS = 5, 20
DELAYED = 5
"""A trial longer than this times the fastest one was delayed: its process waited for a core."""

SIZES = tuple(2**power for power in range(10, 29))
"""1 KiB to 256 MiB."""


def all_reduce_times(
    devices: Devices, cell_sizes: Iterable[int], budget_s: float, sizes: Sequence[int] = SIZES
) -> Microbenchmark | None:
    """Time all-reduces of the sizes that the cell sends, then of `sizes`; bytes, in that order.

    The first of `sizes` that would not fit into the rest of `budget_s` ends the benchmark. Every
    rank must call this: all decisions are made on values that are equal on all ranks.
    """
    if budget_s <= 0:
        return None
    start = time.perf_counter()
    sent = sorted(set(cell_sizes))
    points: list[MicrobenchmarkPoint] = []
    for size in [*sent, *(size for size in sizes if size not in sent)]:
        buffer = torch.empty(-(-size // 4), device=devices[0])
        remaining_s = budget_s - _max_over_ranks(time.perf_counter() - start, devices)
        pilot_s = _max_over_ranks(_time_all_reduce(buffer, devices), devices)
        if points and pilot_s * (WARMUPS + TRIALS) > remaining_s:
            if size in sent:
                continue
            break
        points.append(_measure(buffer, size, devices, sent=size in sent))
    return Microbenchmark(
        points=tuple(sorted(points, key=lambda point: point.bytes)),
        largest_asked_bytes=max([*sent, *sizes]),
        seconds=time.perf_counter() - start,
    )


def _measure(
    buffer: torch.Tensor, size: int, devices: Devices, *, sent: bool
) -> MicrobenchmarkPoint:
    """Time the warm-ups and trials of one size in bytes; a trial counts as its slowest rank."""
    for _ in range(WARMUPS):
        _time_all_reduce(buffer, devices)
    durations_s = [_time_all_reduce(buffer, devices) for _ in range(TRIALS)]
    slowest = torch.tensor(durations_s, dtype=torch.float64).to(devices[0])
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    trials = slowest.tolist()
    return MicrobenchmarkPoint(
        bytes=size,
        trials=len(trials),
        median_s=median(trials),
        min_s=min(trials),
        max_s=max(trials),
        sent=sent,
        lower_quartile_s=float(np.percentile(trials, 25)),
        upper_quartile_s=float(np.percentile(trials, 75)),
        delayed=sum(trial > DELAYED * min(trials) for trial in trials),
    )


def _time_all_reduce(buffer: torch.Tensor, devices: Devices) -> float:
    """Return the seconds of one all-reduce on this rank, started once all ranks are ready.

    It uses the same clock as the collectives of an epoch: on CUDA the time excludes the launch.
    """
    clock = clock_for(devices, 2)
    buffer.fill_(1.0)
    synchronize(devices)
    dist.barrier()
    synchronize(devices)
    start = clock.stamp()
    dist.all_reduce(buffer)
    end = clock.stamp()
    synchronize(devices)
    return clock.seconds(start, end)


def _max_over_ranks(value: float, devices: Devices) -> float:
    """Return the maximum over all ranks, on every rank."""
    largest = torch.tensor([value], dtype=torch.float64, device=devices[0])
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return float(largest.item())
