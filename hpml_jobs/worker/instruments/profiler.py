"""Cross-check of our phases and communication times against torch.profiler."""

import gzip
import math
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from torch.profiler import ProfilerActivity, profile, record_function

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.formulas import union_s
from hpml_jobs.core.measurements import CollectiveKind, ProfiledCollective, ProfilerSummary
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.training_path import Precision
from hpml_jobs.worker.epochs import EpochResult, instrumented_epoch
from hpml_jobs.worker.fork_safety import await_idle_threads
from hpml_jobs.worker.instruments.collectives import Ledger
from hpml_jobs.worker.instruments.timing import Devices, synchronize
from hpml_jobs.worker.training import Training

ITERATIONS = 20
"""Iterations that are profiled."""

_WINDOW = "hpml_jobs iterations"
_GLOO, _NCCL, _OPERATOR = "gloo:", "nccl", "aten::"
"""Parts of the profiler's names of gloo's collectives, NCCL's kernels and torch's operators."""

_ELEMENT_BYTES = {
    "float": 4,
    "double": 8,
    "int": 4,
    "long int": 8,
    "long": 8,
    "c10::half": 2,
    "c10::bfloat16": 2,
    "half": 2,
    "bfloat16": 2,
    "short": 2,
    "unsigned char": 1,
    "byte": 1,
    "char": 1,
    "bool": 1,
}
"""Bytes per element by the dtypes that the profiler writes, in lower case: those of operators
("c10::Half") and of NCCL's kernels ("Half")."""

_KINDS = {
    "allreduce": CollectiveKind.ALL_REDUCE,
    "allgather": CollectiveKind.ALL_GATHER,
    "reducescatter": CollectiveKind.REDUCE_SCATTER,
    "broadcast": CollectiveKind.BROADCAST,
    "gather": CollectiveKind.GATHER,
    "scatter": CollectiveKind.SCATTER,
    "reduce": CollectiveKind.REDUCE,
}
"""Collectives by a part of their names, without signs; a part of another name comes after it."""

NO_DEVICE_EVENTS = (
    "CUPTI gave no events of the GPU: it is missing, not allowed for this user or container, or in "
    "use by another tool (nsys, ncu); run the cell with KINETO_LOG_LEVEL=0 to see why"
)


class Event(NamedTuple):
    """One event of a trace; times are in seconds since the start of the window.

    `processes` is the number of ranks of a collective.
    """

    category: str
    name: str
    start_s: float
    end_s: float
    details: dict[str, Any]
    processes: int = 1

    @property
    def on_device(self) -> bool:
        """Whether it ran on a GPU."""
        return self.category in ("kernel", "gpu_memcpy", "gpu_memset")

    @property
    def is_collective(self) -> bool:
        """Whether it is a collective: a call of gloo until its end, or a kernel of NCCL."""
        if self.on_device:
            return _NCCL in self.name.lower()
        return self.name.startswith(_GLOO)

    @property
    def kind(self) -> CollectiveKind | None:
        """The collective, as torch named it, else by the name of the kernel; None if unknown.

        Of a kernel's name only the collective is true, not algorithm or protocol (NCCL issue 1595).
        """
        name = str(self.details.get("Collective name") or self.name)
        letters = re.sub("[^a-z]", "", name.lower())
        return next((kind for part, kind in _KINDS.items() if part in letters), None)


class ProfilerError(HpmlError):
    """The profiler gave no result; the message says why."""


def profile_iterations(training: Training, number: int, keep: Path | None) -> ProfilerSummary:
    """Run some more iterations under torch.profiler and our instruments at once.

    Every rank must call this. The trace is written to `keep` (a .json.gz for Perfetto or
    chrome://tracing), or discarded.

    Raises:
        ProfilerError: the profiler did not start on every rank, or wrote no readable trace.
    """
    await_idle_threads()
    batches = iter(training.batches(number))  # loads the first ones before the profiler
    profiler = _start_on_all_ranks(training)
    span = _measured_window(training.strategy.devices)
    result = instrumented_epoch(training, number, iterations=ITERATIONS, span=span, batches=batches)
    try:
        profiler.stop()
        with tempfile.TemporaryDirectory() as folder:
            path = keep or Path(folder) / "trace.json.gz"
            profiler.export_chrome_trace(str(path))
            with gzip.open(path) as file:
                content = msgspec.json.decode(file.read())
        events = events_in_window(content["traceEvents"], training.cell.processes)
        return summarize_trace(
            without_overflow_messages(events, training.cell),
            result,
            on_cuda=training.cell.device is Device.CUDA,
        )
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise ProfilerError(f"{type(error).__name__}: {error}") from error


def _start_on_all_ranks(training: Training) -> profile:
    """Start the profiler on all ranks or on none, because all must run the same iterations."""
    on_cuda = training.strategy.devices[0].type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_cuda else [])]
    profiler, reason = profile(activities=activities, record_shapes=True), ""
    try:
        profiler.start()
    except Exception as error:  # the driver may refuse it in many ways
        reason = f"{type(error).__name__}: {error}"
    if training.strategy.all_agree(not reason):
        return profiler
    if not reason:
        profiler.stop()
    raise ProfilerError(reason or "the profiler did not start on another rank")


@contextmanager
def _measured_window(devices: Devices) -> Iterator[None]:
    """Mark the part of the trace to evaluate: the block, until the devices are done."""
    with record_function(_WINDOW):
        yield
        synchronize(devices)


def events_in_window(raw: Iterable[dict[str, Any]], processes: int = 1) -> list[Event]:
    """Return a trace's complete events, clipped to the window; the first one is the window.

    On CUDA the window is in the trace twice. The other one (gpu_user_annotation) extends from its
    first to its last kernel, without the idle time at its ends.

    Raises:
        ValueError: the window is not in the trace.
    """
    complete = [event for event in raw if event.get("ph") == "X"]
    window = next(
        (e for e in complete if e["name"] == _WINDOW and e.get("cat") == "user_annotation"), None
    )
    if window is None:
        raise ValueError("the profiler's trace has no window")
    start, end = window["ts"], window["ts"] + window["dur"]
    events = [Event("window", _WINDOW, 0.0, (end - start) / 1e6, {})]
    for event in complete:
        first, last = max(event["ts"], start), min(event["ts"] + event["dur"], end)
        if event is not window and first <= last:
            times = ((first - start) / 1e6, (last - start) / 1e6)
            details = event.get("args", {})
            category, name = event.get("cat", ""), event["name"]
            events.append(Event(category, name, *times, details, processes))
    return events


def without_overflow_messages(events: list[Event], cell: Cell) -> list[Event]:
    """Return the events without those by which ranks with shards tell each other of an overflow.

    In fp16 torch all-reduces 4 bytes between backward and the step, which no ledger has; fsdp sends
    nothing else by all-reduces.
    """
    if cell.path.precision is not Precision.FP16 or not cell.strategy.traffic.casts_parameters:
        return events
    return [event for event in events if event.kind is not CollectiveKind.ALL_REDUCE]


def summarize_trace(
    events: Sequence[Event], result: EpochResult, *, on_cuda: bool
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
    compute = [
        (event.start_s, event.end_s)
        for event in events
        if not event.is_collective
        and (event.on_device if on_cuda else event.name.startswith(_OPERATOR))
    ]
    window_s = events[0].end_s
    comm_s, compute_s, busy_s = union_s(comm), union_s(compute), union_s([*comm, *compute])
    recorded = result.ledger.collectives if result.ledger else []
    phases = result.phases.phases if result.phases else None
    return ProfilerSummary(
        iterations=result.epoch.iterations,
        window_s=window_s,
        compute_s=compute_s,
        comm_s=comm_s,
        overlap_s=max(0.0, compute_s + comm_s - busy_s),
        idle_s=max(0.0, window_s - busy_s),
        instruments_comm_s=result.phases.communication.total_s if result.phases else 0.0,
        messages=len(collectives),
        message_bytes=_total_bytes(collectives),
        instruments_messages=len(recorded),
        instruments_bytes=sum(collective.bytes for collective in recorded),
        instruments_busy_s=phases.compute_s + phases.pack_s if phases else None,
        instruments_stall_s=phases.stall_s if phases else None,
        collectives=tuple(_by_kind(collectives, result.ledger)) if on_cuda else None,
        scheduling=result.epoch.scheduling,
    )


def _by_kind(collectives: Sequence[Event], ledger: Ledger | None) -> Iterator[ProfiledCollective]:
    """Yield the kinds of collectives that the profiler or the instruments have."""
    recorded = ledger.collectives if ledger else []
    intervals = ledger.intervals() if ledger else []
    for kind in CollectiveKind:
        kernels = [event for event in collectives if event.kind is kind]
        ours = [
            (entry, interval)
            for entry, interval in zip(recorded, intervals, strict=True)
            if entry.kind is kind
        ]
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


def _total_bytes(collectives: Sequence[Event]) -> int | None:
    """Return the bytes of some collectives; None if the profiler has not those of each."""
    sizes = [_message_bytes(event) for event in collectives]
    return None if None in sizes else sum(size for size in sizes if size)


def _message_bytes(event: Event) -> int | None:
    """Return the bytes of a collective's message; None if the profiler does not report them.

    A call of gloo has the shapes of its inputs (of an all-gather the share of a rank), a kernel of
    NCCL torch's numbers of elements.
    """
    details = event.details
    if event.on_device:
        is_output = event.kind in (CollectiveKind.ALL_GATHER, CollectiveKind.SCATTER)
        elements = details.get("Out msg nelems" if is_output else "In msg nelems")
        dtype = details.get("dtype")
    else:
        shapes, dtypes = details.get("Input Dims"), details.get("Input type")
        shares = event.processes if event.kind is CollectiveKind.ALL_GATHER else 1
        elements = shares * math.prod(shapes[0]) if shapes else None
        dtype = dtypes[0] if dtypes else None
    size = _ELEMENT_BYTES.get(str(dtype).lower())
    return elements * size if elements and size else None
