"""Traces of the profiler that a cell has kept (trace=true): reading of bounded size."""

import gzip
import zlib
from pathlib import Path
from typing import NamedTuple

import msgspec

from hpml_jobs.core.record import Record
from hpml_jobs.errors import HpmlError
from hpml_jobs.report.frame.cells import CellResult
from hpml_jobs.study.attempt import AttemptFolder
from hpml_jobs.study.files import open_regular

TRACE_BYTES = 64 * 2**20
"""Most bytes of a trace after decompression. 20 iterations of digits have 6 MB."""

ALL_BYTES = 160 * 2**20
"""Most bytes of all ranks' traces that are read for a picture."""

RANKS = 16
"""The most ranks whose traces are read."""

_DAMAGED = (OSError, EOFError, zlib.error, ValueError, RecursionError)


class NoTraceError(HpmlError):
    """A trace that cannot be used; the message says why."""


class TraceEvent(msgspec.Struct, frozen=True):
    """A complete event of a trace; `ts` and `dur` in microseconds."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: float = 0.0
    dur: float = 0.0

    @property
    def end(self) -> float:
        """Its end in microseconds."""
        return self.ts + self.dur


class _Document(msgspec.Struct, frozen=True):
    traceEvents: tuple[msgspec.Raw, ...]  # noqa: N815 - the name in the file


class RankTrace(NamedTuple):
    """The events of one rank, and the host that it ran on."""

    rank: int
    host: str
    events: tuple[TraceEvent, ...]


def has_traces(result: CellResult) -> bool:
    """Return whether a measured cell has kept the trace of its first rank."""
    record, attempt = result.record, result.attempt
    if not result.measured or record is None or attempt is None or not record.ranks:
        return False
    return AttemptFolder(attempt).trace_of(record.ranks[0].rank).is_file()


def read_traces(result: CellResult) -> list[RankTrace]:
    """Return the traces of a cell's ranks, as many as the limits allow.

    Raises:
        NoTraceError: the trace of a rank is missing or cannot be read.
    """
    record, attempt = result.record, result.attempt
    if record is None or attempt is None:
        raise NoTraceError("no record of its attempt")
    return list(_traces(record, AttemptFolder(attempt)))


def _traces(record: Record, folder: AttemptFolder) -> list[RankTrace]:
    traces, left = [], ALL_BYTES
    for rank in record.ranks[:RANKS]:
        path = folder.trace_of(rank.rank)
        content = _unpacked(path, min(left, TRACE_BYTES))
        left -= len(content)
        try:
            events = decode(content)
        except _DAMAGED as fault:
            raise NoTraceError(f"{path.name} cannot be read: {fault}") from fault
        traces.append(RankTrace(rank.rank, rank.host, events))
        if left < len(content):
            break
    return traces


def _unpacked(path: Path, limit: int) -> bytes:
    try:
        with open_regular(path) as packed, gzip.GzipFile(fileobj=packed) as file:
            content = file.read(limit + 1)
    except _DAMAGED as fault:
        raise NoTraceError(f"{path.name} cannot be read: {fault}") from fault
    if len(content) > limit:
        raise NoTraceError(f"{path.name} has more than {limit / 1e6:.3g} MB")
    return content


def decode(content: bytes) -> tuple[TraceEvent, ...]:
    """Return the complete events of a trace; events of another form are left out.

    Raises:
        ValueError: it is not the JSON of a trace.
    """
    decoder = msgspec.json.Decoder(TraceEvent)
    events = []
    for raw in msgspec.json.decode(content, type=_Document).traceEvents:
        try:
            event = decoder.decode(raw)
        except msgspec.ValidationError:
            continue
        if event.ph == "X":
            events.append(event)
    return tuple(events)
