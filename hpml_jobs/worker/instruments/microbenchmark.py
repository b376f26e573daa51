"""The all-reduce microbenchmark: how fast the links are when nothing else is to be done."""

import time
from collections.abc import Iterable, Sequence
from statistics import median

import torch
import torch.distributed as dist

from hpml_jobs.core.measurements import Probe, ProbePoint
from hpml_jobs.worker.instruments.timing import Devices, clock_for, synchronise

WARMUPS, TRIALS = 5, 20
LADDER = tuple(2**power for power in range(10, 29))
"""1 KiB to 256 MiB."""


def all_reduce_times(
    devices: Devices, sent: Iterable[int], budget_s: float, ladder: Sequence[int] = LADDER
) -> Probe | None:
    """Time all-reduces of the sizes that the cell sends, then of the ladder, smallest first.

    A size that would not fit into what is left of `budget_s` ends the ladder. Every rank must
    call this; the decisions are made on values that all of them share.
    """
    if budget_s <= 0:
        return None
    begin = time.perf_counter()
    own = sorted(set(sent))
    points: list[ProbePoint] = []
    for size in [*own, *(size for size in ladder if size not in own)]:
        buffer = torch.empty(-(-size // 4), device=devices[0])
        left_s = budget_s - _slowest(time.perf_counter() - begin, devices)
        pilot_s = _slowest(_timed(buffer, devices), devices)
        if points and pilot_s * (WARMUPS + TRIALS) > left_s:
            if size in own:
                continue
            break
        points.append(_point(buffer, size, devices, sent=size in own))
    return Probe(
        points=tuple(sorted(points, key=lambda point: point.bytes)),
        largest_asked_bytes=max([*own, *ladder]),
        seconds=time.perf_counter() - begin,
    )


def _point(buffer: torch.Tensor, size: int, devices: Devices, *, sent: bool) -> ProbePoint:
    for _ in range(WARMUPS):
        _timed(buffer, devices)
    mine = torch.tensor([_timed(buffer, devices) for _ in range(TRIALS)], dtype=torch.float64)
    worst = mine.to(devices[0])
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    trials = worst.tolist()
    return ProbePoint(
        bytes=size,
        trials=len(trials),
        median_s=median(trials),
        min_s=min(trials),
        max_s=max(trials),
        sent=sent,
    )


def _timed(buffer: torch.Tensor, devices: Devices) -> float:
    """Seconds of one all-reduce on this rank, all ranks ready; the buffer is filled anew.

    By the same clock as the epochs' collectives: on CUDA without the launch and the waking up.
    """
    clock = clock_for(devices, 2)
    buffer.fill_(1.0)
    synchronise(devices)
    dist.barrier()
    synchronise(devices)
    start = clock.stamp()
    dist.all_reduce(buffer)
    end = clock.stamp()
    synchronise(devices)
    return clock.seconds(start, end)


def _slowest(value: float, devices: Devices) -> float:
    """The maximum over ranks, the same on all of them."""
    shared = torch.tensor([value], dtype=torch.float64, device=devices[0])
    dist.all_reduce(shared, dist.ReduceOp.MAX)
    return float(shared.item())
