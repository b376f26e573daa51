"""What a trace of torch.profiler has of a window: operators, kernels and collectives."""

import math
import re
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from torch.profiler import profile

from hpml_jobs.core.measurements import CollectiveKind
from hpml_jobs.worker.probes import MARK

_GLOO, _NCCL = "gloo:", "nccl"
"""Parts of the profiler's names of gloo's collectives and of NCCL's kernels."""

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
