"""A second pair of eyes: torch.profiler over some iterations, beside our own instruments."""

import gzip
import math
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from torch.profiler import ProfilerActivity, profile, record_function

from hpml_jobs.core.formulas import union_s
from hpml_jobs.core.measurements import Trace
from hpml_jobs.errors import HpmlError
from hpml_jobs.worker.epochs import Ran, instrumented_epoch
from hpml_jobs.worker.fork_safety import await_idle_threads
from hpml_jobs.worker.instruments.timing import Devices, synchronise
from hpml_jobs.worker.training import Training

ITERATIONS = 20
_WINDOW = "hpml_jobs iterations"
_GLOO, _NCCL, _OPERATOR = "gloo:", "nccl", "aten::"
"""How torch's profiler names gloo's collectives, NCCL's kernels, and torch's own operators."""

_ELEMENT_BYTES = {
    "float": 4,
    "double": 8,
    "int": 4,
    "long int": 8,
    "long": 8,
    "c10::Half": 2,
    "c10::BFloat16": 2,
    "unsigned char": 1,
    "bool": 1,
}
"""How the profiler calls dtypes in its traces."""


class Event(NamedTuple):
    """One event of a trace: seconds from the beginning of the window."""

    category: str
    name: str
    start_s: float
    end_s: float
    details: dict[str, Any]

    @property
    def on_device(self) -> bool:
        """Whether a GPU was busy with it."""
        return self.category in ("kernel", "gpu_memcpy", "gpu_memset")

    @property
    def is_collective(self) -> bool:
        """Whether it is a collective of gloo (from its call to its end), or NCCL's kernel."""
        if self.on_device:
            return _NCCL in self.name.lower()
        return self.name.startswith(_GLOO)


class NoProfileError(HpmlError):
    """There is no view through the profiler, and why."""


def look_through_profiler(training: Training, number: int, keep: Path | None) -> Trace:
    """Run some more iterations under torch.profiler and our instruments at once, and compare.

    Every rank must call this. The trace is kept in `keep` (a .json.gz that Perfetto and
    chrome://tracing open), or not at all.

    Raises:
        NoProfileError: the profiler did not start on every rank, or left no readable trace.
    """
    await_idle_threads()
    batches = iter(training.batches(number))  # no process is forked while the profiler looks on
    profiler = _started(training)
    span = _window(training.strategy.devices)
    ran = instrumented_epoch(training, number, iterations=ITERATIONS, span=span, batches=batches)
    try:
        profiler.stop()
        with tempfile.TemporaryDirectory() as folder:
            path = keep or Path(folder) / "trace.json.gz"
            profiler.export_chrome_trace(str(path))
            with gzip.open(path) as file:
                content = msgspec.json.decode(file.read())
        return summary(events_of(content["traceEvents"]), ran)
    except (OSError, RuntimeError, ValueError, KeyError) as fault:
        raise NoProfileError(f"{type(fault).__name__}: {fault}") from fault


def _started(training: Training) -> profile:
    """The profiler, running on all ranks or on none: ranks must not part before the iterations."""
    on_cuda = training.strategy.devices[0].type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_cuda else [])]
    profiler, why = profile(activities=activities, record_shapes=True), ""
    try:
        profiler.start()
    except Exception as fault:  # whatever the driver does not allow
        why = f"{type(fault).__name__}: {fault}"
    if training.strategy.all_agree(not why):
        return profiler
    if not why:
        profiler.stop()
    raise NoProfileError(why or "the profiler did not start on another rank")


@contextmanager
def _window(devices: Devices) -> Iterator[None]:
    """What of the trace counts: from the first iteration until the devices are done."""
    with record_function(_WINDOW):
        yield
        synchronise(devices)


def events_of(raw: Iterable[dict[str, Any]]) -> list[Event]:
    """A trace's complete events within the window, cut to it.

    Raises:
        ValueError: the window is not in the trace.
    """
    whole = [event for event in raw if event.get("ph") == "X"]
    window = next((event for event in whole if event["name"] == _WINDOW), None)
    if window is None:
        raise ValueError("the profiler's trace has no window")
    start, end = window["ts"], window["ts"] + window["dur"]
    found = [Event("window", _WINDOW, 0.0, (end - start) / 1e6, {})]
    for event in whole:
        first, last = max(event["ts"], start), min(event["ts"] + event["dur"], end)
        if event is not window and first <= last:
            times = ((first - start) / 1e6, (last - start) / 1e6)
            details = event.get("args", {})
            found.append(Event(event.get("cat", ""), event["name"], *times, details))
    return found


def summary(events: Sequence[Event], ran: Ran) -> Trace:
    """Compute, communication, overlap and idle by the profiler, beside what we measured.

    On a GPU computation is every kernel and copy that is not NCCL's; on a CPU every operator of
    torch's (aten), on whichever thread.
    """
    on_device = any(event.on_device for event in events)
    collectives = [e for e in events if e.is_collective and e.on_device == on_device]
    comm = [(event.start_s, event.end_s) for event in collectives]
    compute = [
        (event.start_s, event.end_s)
        for event in events
        if not event.is_collective
        and (event.on_device if on_device else event.name.startswith(_OPERATOR))
    ]
    window_s = events[0].end_s
    comm_s, compute_s, busy_s = union_s(comm), union_s(compute), union_s([*comm, *compute])
    sizes = [_bytes(event) for event in collectives]
    noted = ran.ledger.collectives if ran.ledger else []
    return Trace(
        iterations=ran.epoch.iterations,
        window_s=window_s,
        compute_s=compute_s,
        comm_s=comm_s,
        overlap_s=max(0.0, compute_s + comm_s - busy_s),
        idle_s=max(0.0, window_s - busy_s),
        instruments_comm_s=ran.split_phases.communication.total_s if ran.split_phases else 0.0,
        messages=len(collectives),
        message_bytes=None if None in sizes else sum(size for size in sizes if size),
        instruments_messages=len(noted),
        instruments_bytes=sum(entry.bytes for entry in noted),
    )


def _bytes(event: Event) -> int | None:
    """Bytes of a collective's first tensor list, where the profiler recorded its shapes."""
    shapes, kinds = event.details.get("Input Dims"), event.details.get("Input type")
    if not shapes or not kinds or kinds[0] not in _ELEMENT_BYTES:
        return None
    elements: int = math.prod(shapes[0])
    return elements * _ELEMENT_BYTES[kinds[0]]
