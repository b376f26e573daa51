"""What torch.profiler has of a window: the operators, kernels and collectives of this process."""

import math
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from hpml_jobs.core.measurements import CollectiveKind
from hpml_jobs.worker.instruments.timing import Devices, synchronize

MARK = "hpml_jobs iterations"
"""The annotation of the part of a trace to evaluate."""

_GLOO, _NCCL, _OPERATOR = "gloo:", "nccl", "aten::"
"""Parts of the profiler's names of gloo's collectives, NCCL's kernels and torch's operators."""

_DTYPES = {
    "float": torch.float32,
    "double": torch.float64,
    "int": torch.int32,
    "long int": torch.int64,
    "long": torch.int64,
    "c10::half": torch.float16,
    "c10::bfloat16": torch.bfloat16,
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
    "short": torch.int16,
    "unsigned char": torch.uint8,
    "byte": torch.uint8,
    "char": torch.int8,
    "bool": torch.bool,
}
"""The dtypes by the names that the profiler writes, in lower case: those of operators ("c10::Half")
and of NCCL's kernels ("Half")."""

_KINDS = {
    "allreduce": CollectiveKind.ALL_REDUCE,
    "allgather": CollectiveKind.ALL_GATHER,
    "reducescatter": CollectiveKind.REDUCE_SCATTER,
    "broadcast": CollectiveKind.BROADCAST,
    "gather": CollectiveKind.GATHER,
    "scatter": CollectiveKind.SCATTER,
    "reduce": CollectiveKind.REDUCE,
    "barrier": CollectiveKind.ALL_REDUCE,  # of one byte, which NCCL sends
}
"""Collectives by a part of their names, without signs; a part of another name comes after it."""


NO_DEVICE_EVENTS = (
    "CUPTI gave no events of the GPU: it is missing, not allowed for this user or container, or in "
    "use by another tool (nsys, ncu); run the cell with KINETO_LOG_LEVEL=0 to see why"
)


class TraceEvent(NamedTuple):
    """One event of a trace; times are in seconds since the start of the window.

    `processes` is the number of ranks of a collective, which alone has `details`.
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

    def computes(self, *, on_cuda: bool) -> bool:
        """Whether it is computation: a kernel or copy of a GPU, an operator of torch on a CPU."""
        is_computing = self.on_device if on_cuda else self.name.startswith(_OPERATOR)
        return is_computing and not self.is_collective

    @property
    def kind(self) -> CollectiveKind | None:
        """The collective, as torch named it, else by the name of the kernel; None if unknown.

        Of a kernel's name only the collective is true, not algorithm or protocol (NCCL issue 1595).
        """
        return next(
            (kind for part, kind in _KINDS.items() if part in self.operation), None
        )

    @property
    def operation(self) -> str:
        """The letters of its name, of a collective those of torch's name for it."""
        name = str(self.details.get("Collective name") or self.name)
        return re.sub("[^a-z]", "", name.lower())


def start_profiler(device: torch.device) -> profile:
    """Start the profiler for this process and its device, with the shapes of messages.

    Raises:
        Exception: the driver refuses it, which it may do in many ways.
    """
    if device.type == "cpu":
        # Keep its messages (no CUDA) out of the cell's log; with CUDA they say why a trace has no
        # events of the GPU.
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    else:
        # to start it again may break CUDA graphs
        os.environ.setdefault("TEARDOWN_CUPTI", "0")
    activities = [ProfilerActivity.CPU]
    activities += [ProfilerActivity.CUDA] if device.type == "cuda" else []
    # torch 2.11 warns at a start without acc_events; a stop with it takes 0.5 ms per operator.
    profiler = profile(activities=activities, record_shapes=True, acc_events=True)
    profiler.start()
    if profiler.profiler is not None:
        profiler.profiler.acc_events = False
    record_numbers(is_on=False)
    return profiler


def record_numbers(*, is_on: bool) -> None:
    """Let profilers record numbers and lists that operators are called with, as they do by default.

    With many small operators on a CPU that takes half as long as they do; no shape needs it.
    """
    set_on = getattr(
        torch._C._profiler, "_set_record_concrete_inputs_enabled_val", None
    )
    if set_on is not None:
        set_on(is_on)


@contextmanager
def measured_window(devices: Devices) -> Iterator[None]:
    """Mark the part of the trace to evaluate: the block, until the devices are done."""
    with record_function(MARK):
        yield
        synchronize(devices)


def read_trace(profiler: profile, processes: int) -> list[TraceEvent]:
    """Return the events in the marked window of a profiler that is stopped; the first is it.

    Raises:
        OSError, RuntimeError, ValueError: the trace cannot be written, or has no window.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return events_in_window(path.read_bytes(), processes)


class _Raw(msgspec.Struct):
    """An event of a trace in Chrome's format; times are in microseconds."""

    ph: str
    name: str | int = ""
    cat: str = ""
    ts: float = 0.0
    dur: float = 0.0
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Trace(msgspec.Struct):
    traceEvents: list[_Raw]  # noqa: N815  (the format's name)


def events_in_window(trace: bytes, processes: int = 1) -> list[TraceEvent]:
    """Return a trace's complete events, clipped to the window; the first one is the window.

    That is the longest one with its mark. On CUDA it is in the trace twice. The other one
    (gpu_user_annotation) extends from its first to its last kernel, without the idle time at its
    ends.

    Raises:
        ValueError: the window is not in the trace.
    """
    raw = msgspec.json.decode(trace, type=_Trace).traceEvents
    complete = [event for event in raw if event.ph == "X"]
    windows = [e for e in complete if e.name == MARK and e.cat == "user_annotation"]
    if not windows:
        raise ValueError("the profiler's trace has no window")
    window = max(windows, key=lambda event: event.dur)
    start, end = window.ts, window.ts + window.dur
    events = [TraceEvent("window", MARK, 0.0, window.dur / 1e6, {})]
    for entry in complete:
        first = max(entry.ts, start)
        last = min(entry.ts + entry.dur, end)
        if entry is window or first > last:
            continue
        start_s, end_s = (first - start) / 1e6, (last - start) / 1e6
        event = TraceEvent(entry.cat, str(entry.name), start_s, end_s, {}, processes)
        if event.is_collective:
            event = event._replace(details=msgspec.json.decode(entry.args))
        events.append(event)
    return events


class Content(NamedTuple):
    """What a message has: a number of elements of a dtype."""

    elements: int
    dtype: torch.dtype

    @property
    def name(self) -> str:
        """The name of the dtype: float32."""
        return str(self.dtype).removeprefix("torch.")

    @property
    def bytes(self) -> int:
        """The number of elements times the size of one."""
        return self.elements * self.dtype.itemsize


def content_of(event: TraceEvent) -> Content | None:
    """Return the content of a collective's message; None if the profiler does not report it.

    A call of gloo has the shapes of its inputs (of an all-gather the share of a rank), a kernel of
    NCCL torch's numbers of elements. A barrier is of one byte.
    """
    details = event.details
    if "barrier" in event.operation:
        return Content(1, torch.uint8)
    if event.on_device:
        is_output = event.kind in (CollectiveKind.ALL_GATHER, CollectiveKind.SCATTER)
        elements = details.get("Out msg nelems" if is_output else "In msg nelems")
        name = details.get("dtype")
    else:
        shapes = details.get("Input Dims") or []
        dtypes = details.get("Input type")
        if event.kind is not CollectiveKind.ALL_REDUCE:  # coalesced ones are one call
            shapes = shapes[:1]
        elements = sum(map(math.prod, shapes))
        if event.kind is CollectiveKind.ALL_GATHER:
            elements *= event.processes
        name = dtypes[0] if dtypes else None
    dtype = _DTYPES.get(str(name).lower())
    return Content(elements, dtype) if elements and dtype else None
