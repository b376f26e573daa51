"""Cross-check of our phases and communication times against torch.profiler."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from torch.profiler import profile

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.formulas import union_s
from hpml_jobs.core.measurements import (
    CollectiveKind,
    ProfiledCollective,
    ProfilerSummary,
)
from hpml_jobs.core.rank import Rank
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.training_path import Precision
from hpml_jobs.worker.epochs import EpochResult, instrumented_epoch
from hpml_jobs.worker.fork_safety import await_idle_threads
from hpml_jobs.worker.instruments.collectives import Ledger
from hpml_jobs.worker.instruments.trace import (
    NO_DEVICE_EVENTS,
    TraceEvent,
    content_of,
    measured_window,
    read_trace,
    start_profiler,
)
from hpml_jobs.worker.probes import Probing
from hpml_jobs.worker.training import Training

ITERATIONS = 20
"""Iterations that are profiled."""


class ProfilerError(HpmlError):
    """The profiler gave no result; the message says why."""


def measure_profile(probing: Probing) -> tuple[Rank, dict[str, Any]]:
    """Return the rank's part of the record with the profiler's result, and nothing more."""
    trace = probing.steps.attempt("trace", lambda: cross_check(probing))
    return msgspec.structs.replace(probing.rank, profiler=trace), {}


def cross_check(probing: Probing) -> ProfilerSummary:
    """Return the profiler's measurement of some more iterations.

    The trace file stays in the attempt's folder if it is to be kept. CUPTI is not allowed
    everywhere.

    Raises:
        ProfilerError: the profiler gave no result.
    """
    training, cell = probing.training, probing.training.cell
    path = probing.folder.trace_of(probing.rank.rank) if probing.keeps_trace else None
    if cell.epochs > cell.protocol.epochs:  # the plain epochs ran a bare wrapper
        training.rewrap(instrumented=True)
    training.warm()  # the cache of memory is empty
    return profile_iterations(training, cell.epochs, path)


def profile_iterations(
    training: Training, number: int, keep: Path | None
) -> ProfilerSummary:
    """Run some more iterations under torch.profiler and our instruments at once.

    Every rank must call this. The trace is written to `keep` (a .json.gz for Perfetto or
    chrome://tracing), or discarded.

    Raises:
        ProfilerError: the profiler did not start on every rank, or wrote no readable trace.
    """
    await_idle_threads()
    batches = iter(training.batches(number))  # loads the first ones before the profiler
    profiler = _start_on_all_ranks(training)
    span = measured_window(training.strategy.devices)
    result = instrumented_epoch(
        training, number, iterations=ITERATIONS, span=span, batches=batches
    )
    try:
        profiler.stop()
        events = read_trace(profiler, training.cell.processes, keep)
        return summarize_trace(
            without_overflow_messages(events, training.cell),
            result,
            on_cuda=training.cell.device is Device.CUDA,
        )
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise ProfilerError(f"{type(error).__name__}: {error}") from error


def _start_on_all_ranks(training: Training) -> profile:
    """Start the profiler on all ranks or on none, because all must run the same iterations."""
    profiler, reason = None, ""
    try:
        profiler = start_profiler(training.strategy.devices[0])
    except Exception as error:  # the driver may refuse it in many ways
        reason = f"{type(error).__name__}: {error}"
    is_everywhere = training.strategy.all_agree(not reason)
    if profiler and is_everywhere:
        return profiler
    if profiler:
        profiler.stop()
    raise ProfilerError(reason or "the profiler did not start on another rank")


def without_overflow_messages(events: list[TraceEvent], cell: Cell) -> list[TraceEvent]:
    """Return the events without those by which ranks with shards tell each other of an overflow.

    In fp16 torch all-reduces 4 bytes between backward and the step, which no ledger has; fsdp sends
    nothing else by all-reduces.
    """
    if (
        cell.path.precision is not Precision.FP16
        or not cell.strategy.traffic.casts_parameters
    ):
        return events
    return [event for event in events if event.kind is not CollectiveKind.ALL_REDUCE]


def summarize_trace(
    events: Sequence[TraceEvent], result: EpochResult, *, on_cuda: bool
) -> ProfilerSummary:
    """Return computation, communication, overlap and idle time of the profiler, beside ours.

    On a GPU computation is every kernel and copy that is not NCCL's; on a CPU every operator of
    torch (aten), in any thread.

    Raises:
        ProfilerError: the trace of a GPU has no kernels. The host's operators are not the GPU's
            work, so they do not replace them.
    """
    if on_cuda and not any(event.category == "kernel" for event in events):
        raise ProfilerError(NO_DEVICE_EVENTS)
    collectives = [e for e in events if e.is_collective and e.on_device == on_cuda]
    comm = [(event.start_s, event.end_s) for event in collectives]
    compute = [(e.start_s, e.end_s) for e in events if e.computes(on_cuda=on_cuda)]
    window_s = events[0].end_s
    comm_s, compute_s, busy_s = (
        union_s(comm),
        union_s(compute),
        union_s([*comm, *compute]),
    )
    ledger = result.ledger
    assert ledger is not None  # noqa: S101 -- the epoch was instrumented
    instruments_comm_s = 0.0
    instruments_busy_s = instruments_stall_s = None
    if result.phases is not None:
        phases = result.phases.phases
        instruments_comm_s = result.phases.communication.total_s
        instruments_busy_s = phases.compute_s + phases.pack_s
        instruments_stall_s = phases.stall_s
    return ProfilerSummary(
        iterations=result.epoch.iterations,
        window_s=window_s,
        compute_s=compute_s,
        comm_s=comm_s,
        overlap_s=max(0.0, compute_s + comm_s - busy_s),
        idle_s=max(0.0, window_s - busy_s),
        instruments_comm_s=instruments_comm_s,
        messages=len(collectives),
        message_bytes=_total_bytes(collectives),
        instruments_messages=len(ledger.collectives),
        instruments_bytes=sum(collective.bytes for collective in ledger.collectives),
        instruments_busy_s=instruments_busy_s,
        instruments_stall_s=instruments_stall_s,
        collectives=tuple(_by_kind(collectives, ledger)) if on_cuda else None,
        scheduling=result.epoch.scheduling,
    )


def _by_kind(
    collectives: Sequence[TraceEvent], ledger: Ledger
) -> Iterator[ProfiledCollective]:
    """Yield the kinds of collectives that the profiler or the instruments have."""
    recorded = list(zip(ledger.collectives, ledger.intervals(), strict=True))
    for kind in CollectiveKind:
        kernels = [event for event in collectives if event.kind is kind]
        ours = [(entry, interval) for entry, interval in recorded if entry.kind is kind]
        if kernels or ours:
            yield ProfiledCollective(
                kind=kind,
                seconds=union_s((event.start_s, event.end_s) for event in kernels),
                messages=len(kernels),
                message_bytes=_total_bytes(kernels),
                instruments_s=union_s(interval for _, interval in ours),
                instruments_messages=len(ours),
                instruments_bytes=sum(entry.bytes for entry, _ in ours),
            )


def _total_bytes(collectives: Sequence[TraceEvent]) -> int | None:
    """Return the bytes of some collectives; None if the profiler has not those of each."""
    contents = [content_of(event) for event in collectives]
    return (
        None
        if None in contents
        else sum(content.bytes for content in contents if content)
    )
