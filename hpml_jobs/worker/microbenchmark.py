"""The microbenchmark: time of a collective by message size while the devices do nothing else.

With NCCL's own log: the algorithm, protocol and channels that it chose for each message.
"""

import ctypes
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec
import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.measurements import (
    SWEPT,
    CollectiveKind,
    Communication,
    Microbenchmark,
    MicrobenchmarkPoint,
    NcclChoice,
    Purpose,
)
from hpml_jobs.worker.instruments.timing import Clock, Devices, Stamp, clock_for

WARMUPS, TRIALS = 5, 20
DELAYED = 5
"""A trial longer than this times the fastest one was delayed: its process waited for a core."""

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

    Raises:
        ValueError: this collective cannot be measured.
    """
    if kind not in SWEPT:
        raise ValueError(f"no microbenchmark of {kind.words}")
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
    """The seconds of one collective; late if its launch is in them, None if nothing is queued."""

    seconds: float
    is_late: bool | None


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
        is_late = clock.is_passed(start) if is_queued else None
        if is_late:
            self._ahead_s = min(2 * self._ahead_s, AHEAD_LIMIT_S)
        clock.synchronize()
        return MessageTrial(clock.seconds(start, end), is_late)

    def trials(self, call: Call) -> list[MessageTrial]:
        """Return the trials of a call after the warm-ups; a trial counts as its slowest rank."""
        for _ in range(WARMUPS):
            self.time(call)
        trials = [self.time(call) for _ in range(TRIALS)]
        values = [[trial.seconds, float(trial.is_late or 0)] for trial in trials]
        slowest = torch.tensor(values, dtype=torch.float64).to(self._device)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        of_slowest = []
        for (seconds, late), trial in zip(slowest.tolist(), trials, strict=True):
            is_late = None if trial.is_late is None else late > 0
            of_slowest.append(MessageTrial(seconds, is_late))
        return of_slowest

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
    are_queued = any(trial.is_late is not None for trial in trials)
    return MicrobenchmarkPoint(
        kind=kind,
        bytes=size,
        trials=len(seconds),
        median_s=median(seconds),
        min_s=min(seconds),
        max_s=max(seconds),
        sent=sent,
        lower_quartile_s=float(np.percentile(seconds, 25)),
        upper_quartile_s=float(np.percentile(seconds, 75)),
        delayed=sum(second > DELAYED * min(seconds) for second in seconds),
        launched_late=len(trials) - len(in_time) if are_queued else None,
    )


LIBRARY = "libnccl.so.2"

_NCCL_KINDS = {
    "AllReduce": CollectiveKind.ALL_REDUCE,
    "AllGather": CollectiveKind.ALL_GATHER,
    "ReduceScatter": CollectiveKind.REDUCE_SCATTER,
    "Broadcast": CollectiveKind.BROADCAST,
    "Reduce": CollectiveKind.REDUCE,
}

_CHOICE = re.compile(
    r"NCCL INFO (?P<kind>\w+)(?: \[(?P<way>[\w ]+)\])?: (?P<bytes>\d+) Bytes -> "
    r"(?:Algo (?P<algorithm>\w+) proto (?P<protocol>\w+) "
    r"channel\{Lo\.\.Hi\}=\{(?P<low>\d+)\.\.(?P<high>\d+)\}"
    r"|Kernel (?P<kernel>\S+) nchannels (?P<channels>\d+)"
    r"|\S+)"
)
"""The lines of NCCL 2.24 to 2.30 (src/enqueue.cc).

Instead of an algorithm it writes `Symmetric` of kernels on symmetric memory, and `Copy Engine` of
copies.
"""


class NcclLogError(HpmlError):
    """NCCL cannot be asked for its choices; the message says why."""


@contextmanager
def nccl_log(path: Path) -> Iterator[None]:
    """Let NCCL of this process write its choices to a file, in this block only.

    NCCL reads NCCL_DEBUG once. `ncclResetDebugInit` (2.24 and later) lets it read the variables
    again, so that training runs without the log.

    Raises:
        NcclLogError: NCCL is not loaded as a library, or is older than 2.24.
    """
    reset = _reset_function()
    settings = {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,TUNING",
        "NCCL_DEBUG_FILE": str(path).replace("%", "%%"),
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ |= settings
    reset()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        reset()


def _reset_function() -> Callable[[], None]:
    """Return NCCL's function that lets it read the variables of its log again."""
    try:
        library = ctypes.CDLL(LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        reset = library.ncclResetDebugInit
    except (OSError, AttributeError) as error:
        raise NcclLogError(f"NCCL's algorithm: {error}") from error
    reset.argtypes, reset.restype = (), None
    function: Callable[[], None] = reset
    return function


_OF_ONE_RANK = (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER)
"""Collectives of which NCCL logs the bytes of one rank's share (src/enqueue.cc, `task->count`)."""


def parse_choices(lines: Iterable[str], ranks: int) -> tuple[NcclChoice, ...]:
    """Return the choices in a log, the last one of each collective and size.

    Their bytes are those of the whole message, as a point of the microbenchmark has them.

    >>> line = "n1:7:9 [0] NCCL INFO AllReduce: {} Bytes -> Algo {} proto {} channel{{Lo..Hi}}={{}}"
    >>> parse_choices([line.format(1024, "TREE", "LL").replace("{}", "{0..1}")], ranks=4)[0].text
    'TREE/LL, 2 channels'
    """
    choices: dict[tuple[CollectiveKind, int], NcclChoice] = {}
    for line in lines:
        match = _CHOICE.search(line)
        choice = _choice(match, ranks) if match else None
        if choice is not None:
            choices[choice.kind, choice.bytes] = choice
    return tuple(choices.values())


def _choice(match: re.Match[str], ranks: int) -> NcclChoice | None:
    """Return the choice of a line; None of a collective that is not measured, or without one."""
    kind = _NCCL_KINDS.get(match["kind"])
    algorithm = match["algorithm"] or match["way"]
    if kind is None or not algorithm:
        return None
    return NcclChoice(
        kind=kind,
        bytes=int(match["bytes"]) * (ranks if kind in _OF_ONE_RANK else 1),
        algorithm=algorithm,
        protocol=match["protocol"] or match["kernel"],
        channels=_channels(match),
    )


def _channels(match: re.Match[str]) -> int | None:
    if match["channels"]:
        return int(match["channels"])
    return int(match["high"]) - int(match["low"]) + 1 if match["high"] else None


def with_nccl_choices(
    benchmark: Microbenchmark, devices: Devices, path: Path
) -> tuple[Microbenchmark, str | None]:
    """Return the benchmark with NCCL's choices, and the reason if they are not known.

    Each message is sent once more while NCCL of rank 0 writes its log to `path`. Every rank must
    call this; the choices are known on rank 0.
    """
    writes, reason = dist.get_rank() == 0, None
    with ExitStack() as stack:
        try:
            stack.enter_context(nccl_log(path) if writes else nullcontext())
        except NcclLogError as error:
            writes, reason = False, str(error)
        for point in benchmark.points:
            prepare(
                point.kind, point.bytes, devices[0]
            ).run()  # NCCL writes at the call
    if not writes:
        return benchmark, reason
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    choices = parse_choices(lines, dist.get_world_size())
    if not choices:
        return benchmark, f"NCCL's algorithm: no choice in its log {path.name}"
    return msgspec.structs.replace(benchmark, nccl=choices), None
