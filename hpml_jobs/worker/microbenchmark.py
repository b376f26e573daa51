"""The microbenchmark: time of a collective by message size while the devices do nothing else."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from hpml_jobs.core.measurements import (
    SWEPT,
    CollectiveKind,
    Communication,
    Microbenchmark,
    MicrobenchmarkPoint,
    Purpose,
)
from hpml_jobs.worker.instruments.timing import Clock, Devices, Stamp, clock_for

WARMUPS, TRIALS = 5, 20
SIZES = tuple(2**power for power in range(10, 29))
"""1 KiB to 256 MiB."""

ELEMENT_BYTES = 4
"""Messages are of fp32 values."""

AHEAD_S, AHEAD_LIMIT_S = 1e-3, 32e-3
"""Work queued ahead of a trial, so that the host has queued the collective before its start: at
first, and at most."""

_ALL_GATHER: Callable[[Tensor, Tensor], object] = (
    getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
)
_REDUCE_SCATTER: Callable[[Tensor, Tensor], object] = (
    getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
)
"""Collectives of (output, input); torch 2.14 has new names for them."""


def sizes_sent(communication: Communication | None) -> dict[CollectiveKind, set[int]]:
    """Return the collectives to measure, each with the sizes in bytes that a cell sends.

    They are those that carry gradients or parameters; without any, the all-reduce.
    """
    sizes: dict[CollectiveKind, set[int]] = {}
    messages = communication.messages if communication else ()
    for message in messages:
        if message.kind in SWEPT and message.purpose is not Purpose.BUFFERS:
            sizes.setdefault(message.kind, set()).add(message.bytes)
    return sizes or {CollectiveKind.ALL_REDUCE: set()}


def collective_times(
    devices: Devices,
    sent: Mapping[CollectiveKind, Collection[int]],
    budget_s: float,
    sizes: Sequence[int] = SIZES,
    *,
    clock_of: Callable[[int], Clock] | None = None,
) -> Microbenchmark | None:
    """Time each collective of `sent` at the sizes that the cell sends, then at `sizes`, in bytes.

    At least one size of each is measured. The first of `sizes` that would not fit into the rest of
    `budget_s` ends the benchmark of its collective. Every rank must call this: all decisions are
    made on values that are equal on all ranks. `clock_of` returns a clock that is ready for a
    number of stamps, by default that of the devices.
    """
    if budget_s <= 0:
        return None
    start, device = time.perf_counter(), devices[0]
    timer = _Timer(device, clock_of(2) if clock_of else clock_for(devices, 2))
    points: list[MicrobenchmarkPoint] = []
    ended: set[CollectiveKind] = set()
    messages = list(_messages(sent, sizes))
    for kind, size in messages:
        if kind in ended:
            continue
        is_sent = size in sent[kind]
        call = prepare(kind, size, device)
        # the first use of a size: NCCL connects its algorithm, gloo its buffers
        timer.time(call)
        remaining_s = budget_s - timer.max_over_ranks(time.perf_counter() - start)
        pilot_s = timer.max_over_ranks(timer.time(call).seconds)
        is_measured = any(point.kind is kind for point in points)
        if not is_measured or pilot_s * (WARMUPS + TRIALS) <= remaining_s:
            points.append(
                summarize_trials(kind, size, timer.trials(call), sent=is_sent)
            )
        elif not is_sent:
            ended.add(kind)
    order = [*sent]
    points.sort(key=lambda point: (order.index(point.kind), point.bytes))
    return Microbenchmark(
        points=tuple(points),
        largest_asked_bytes=max(size for _, size in messages),
        seconds=time.perf_counter() - start,
    )


def _messages(
    sent: Mapping[CollectiveKind, Collection[int]], sizes: Iterable[int]
) -> Iterator[tuple[CollectiveKind, int]]:
    """Yield collectives and sizes in turn: those that are sent, then each of the other sizes."""
    ranked = [
        (rank, kind, size)
        for kind, of_kind in sent.items()
        for rank, size in enumerate(sorted({*of_kind}))
    ]
    ranked.sort(key=lambda message: message[0])
    for _, kind, size in ranked:
        yield kind, size
    for size in sizes:
        yield from (
            (kind, size) for kind, of_kind in sent.items() if size not in of_kind
        )


class Call(NamedTuple):
    """A collective of some bytes: its input and output on this rank, and the call."""

    inputs: Tensor
    output: Tensor
    run: Callable[[], object]


def prepare(kind: CollectiveKind, size: int, device: torch.device) -> Call:
    """Return the call of a collective of `size` bytes, counted as in `formulas.bus_factor`.

    The bytes are rounded up to whole elements, for each rank where ranks have shares.
    """
    elements, ranks = -(-size // ELEMENT_BYTES), dist.get_world_size()
    if kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.BROADCAST):
        whole = torch.ones(elements, device=device)
        if kind is CollectiveKind.ALL_REDUCE:
            return Call(whole, whole, lambda: dist.all_reduce(whole))
        return Call(whole, whole, lambda: dist.broadcast(whole, src=0))
    elements_of_rank = -(-elements // ranks)
    whole = torch.ones(ranks * elements_of_rank, device=device)
    # in place, as FSDP2's: its input is a part of the output
    if kind is CollectiveKind.ALL_GATHER:
        share = whole[dist.get_rank() * elements_of_rank :][:elements_of_rank]
        return Call(share, whole, lambda: _ALL_GATHER(whole, share))
    share = torch.ones(elements_of_rank, device=device)
    return Call(whole, share, lambda: _REDUCE_SCATTER(share, whole))


class MessageTrial(NamedTuple):
    """The seconds of one collective; late if its launch is in them."""

    seconds: float
    is_late: bool


class _Timer:
    """Times collectives with the clock of an epoch's collectives.

    On CUDA a device works through a queue. A collective that is launched on an idle device would be
    timed with its launch from Python (20 to 50 us), which no collective of an epoch has in its
    time. So each trial is queued behind work of about a millisecond and a small all-reduce, after
    which all devices start the trial together.
    """

    def __init__(self, device: torch.device, clock: Clock) -> None:
        self._device = device
        self._clock = clock
        self._ahead_s = AHEAD_S
        self._small = torch.ones(1, device=device)

    def time(self, call: Call) -> MessageTrial:
        """Return one trial on this rank, started when all ranks are ready."""
        clock = self._clock
        clock.prepare(2)
        call.inputs.fill_(1.0)
        self._small.fill_(1.0)
        clock.synchronize()
        dist.barrier()
        clock.synchronize()
        is_queued = clock.occupy(self._ahead_s)
        if is_queued:
            dist.all_reduce(self._small)
        start: Stamp = clock.stamp()
        call.run()
        end: Stamp = clock.stamp()
        is_late = is_queued and clock.is_passed(start)
        if is_late:
            self._ahead_s = min(2 * self._ahead_s, AHEAD_LIMIT_S)
        clock.synchronize()
        return MessageTrial(clock.seconds(start, end), is_late)

    def trials(self, call: Call) -> list[MessageTrial]:
        """Return the trials of a call after the warm-ups; a trial counts as its slowest rank."""
        for _ in range(WARMUPS):
            self.time(call)
        trials = [self.time(call) for _ in range(TRIALS)]
        slowest = torch.tensor(trials, dtype=torch.float64).to(self._device)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        return [MessageTrial(seconds, late > 0) for seconds, late in slowest.tolist()]

    def max_over_ranks(self, value: float) -> float:
        """Return the maximum over all ranks, on every rank."""
        largest = torch.tensor([value], dtype=torch.float64, device=self._device)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        return float(largest.item())


def summarize_trials(
    kind: CollectiveKind, size: int, trials: Sequence[MessageTrial], *, sent: bool
) -> MicrobenchmarkPoint:
    """Return the point of one size; late trials are left out, unless all are late."""
    in_time = [trial.seconds for trial in trials if not trial.is_late]
    seconds = in_time or [trial.seconds for trial in trials]
    return MicrobenchmarkPoint(
        kind=kind,
        bytes=size,
        trials=len(seconds),
        median_s=median(seconds),
        min_s=min(seconds),
        max_s=max(seconds),
        sent=sent,
        lower_quartile_s=float(np.percentile(seconds, 25)),
    )
