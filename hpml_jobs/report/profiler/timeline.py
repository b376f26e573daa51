"""The profiler's kept traces: reading of bounded size, and a picture of an iteration by rank."""

import gzip
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.record import Record
from hpml_jobs.report.frame import style
from hpml_jobs.report.frame.captions import cell_label
from hpml_jobs.report.frame.cells import CellResult
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import significant
from hpml_jobs.report.frame.picture import Axes, Picture, named, rows
from hpml_jobs.report.frame.rows import Place, place_of
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


CAPTION = (
    "torch.profiler, {cell}, first run: the iteration of median length on rank {rank}, and the "
    "same one on the others. Above: what a rank computes; below: collectives, waiting for other "
    "ranks included. The profiler lengthens an iteration."
)
SEVERAL_CLOCKS = "Ranks of several hosts are aligned at the end of their last collective."

SHORTEST = 1e-3
"""Gaps shorter than this share of the picture are closed: they cannot be seen."""

_COPIES = ("gpu_memcpy", "gpu_memset")
_DEVICE = ("kernel", *_COPIES)
_LOADER, _BACKWARD, _STEP = "enumerate(DataLoader)", "autograd::engine::evaluate_f", "Optimizer."


class Lane(NamedTuple):
    """What is drawn of a rank: a name, a colour, its half of the line, and its events."""

    name: str
    colour: str
    is_above: bool
    has: Callable[[TraceEvent], bool]


def _is_collective(event: TraceEvent) -> bool:
    if event.cat in _DEVICE:
        return "nccl" in event.name.lower()
    return event.name.startswith("gloo:")


LOADING = Lane("loading", style.MIDDLE_GREY, True, lambda e: e.name.startswith(_LOADER))
COMMUNICATION = Lane("collectives", style.RED, False, _is_collective)
ON_CPU = (
    Lane("forward and loss", style.SKY, True, lambda e: e.name.startswith("aten::")),
    Lane("backward", style.BLUE, True, lambda e: e.name.startswith(_BACKWARD)),
    Lane("optimizer", style.GREEN, True, lambda e: e.name.startswith(_STEP)),
    LOADING,
    COMMUNICATION,
)
ON_GPU = (
    LOADING,
    Lane("kernels", style.BLUE, True, lambda e: e.cat == "kernel" and not _is_collective(e)),
    Lane("copies", style.ORANGE, True, lambda e: e.cat in _COPIES),
    COMMUNICATION,
)
"""Later lanes cover earlier ones."""

Span = tuple[float, float]
"""A time from a start to an end, in microseconds."""


class Iteration(NamedTuple):
    """One iteration of one rank, with its events."""

    label: str
    trace: RankTrace
    span: Span
    events: list[TraceEvent]

    def spans(self, lane: Lane) -> list[Span]:
        """Return the parts of a lane's events that lie in the iteration."""
        start, end = self.span
        return [(max(e.ts, start), min(e.end, end)) for e in self.events if lane.has(e)]


def timeline(groups: Sequence[ConditionGroup], asked: Sequence[Place | None]) -> Picture | None:
    """Plot one iteration of every rank of a cell; None if no cell has kept its trace.

    `asked` are the places to ask for, one for each group: their cells are preferred.
    """
    cells = [
        (group, place, result)
        for group, place in zip(groups, asked, strict=True)
        for result in group.cells
        if has_traces(result)
    ]
    for group, _, result in sorted(cells, key=_rank, reverse=True):
        try:
            iterations = same_iteration(read_traces(result))
        except NoTraceError:  # the next cell may have one that can be read
            continue
        if iterations:
            return _picture(group, result, iterations)
    return None


def _rank(of: tuple[ConditionGroup, Place | None, CellResult]) -> tuple[bool, bool, int, int]:
    """Return what is highest for the cell to ask for, then for cells of the most GPUs."""
    _, asked, result = of
    cell = result.cell
    if cell is None:
        return (False, False, 0, 0)
    return (cell.gpus > 1, place_of(cell) == asked, cell.gpus, cell.batch)


def same_iteration(of_ranks: Sequence[RankTrace]) -> list[Iteration]:
    """Return the iteration of median length of the first rank, and the same one of the others.

    An iteration begins where the batch is loaded, which is once in each. The first has more to do
    than the others, and the end of the last is not in the trace. Empty without three iterations.
    """
    starts = [
        sorted(event.ts for event in trace.events if event.name.startswith(_LOADER))
        for trace in of_ranks
    ]
    count = min(map(len, starts), default=0)
    if count < 4:
        return []
    lengths = [starts[0][n + 1] - starts[0][n] for n in range(count - 1)]
    typical = median(lengths[1:])
    number = min(range(1, count - 1), key=lambda n: abs(lengths[n] - typical))
    several_hosts = len({trace.host for trace in of_ranks}) > 1
    result = []
    for trace, begins in zip(of_ranks, starts, strict=True):
        start, end = begins[number], begins[number + 1]
        events = [e for e in trace.events if e.ts < end and e.end > start]
        host = f" on {trace.host.partition('.')[0]}" if several_hosts else ""
        result.append(Iteration(f"rank {trace.rank}{host}", trace, (start, end), events))
    return result


def _picture(
    group: ConditionGroup, result: CellResult, iterations: list[Iteration]
) -> Picture | None:
    on_gpu = any(event.cat in _DEVICE for it in iterations for event in it.events)
    lanes = ON_GPU if on_gpu else ON_CPU
    origins = _origins(iterations)
    width = max(it.span[1] - origin for it, origin in zip(iterations, origins, strict=True))

    def draw(axis: Axes, iterations: Sequence[Iteration]) -> list[str]:
        texts = []
        for place, (it, origin) in enumerate(zip(iterations, origins, strict=True)):
            for lane in lanes:
                spans = merged(it.spans(lane), SHORTEST * width)
                bars = [(1e-3 * (start - origin), 1e-3 * (end - start)) for start, end in spans]
                if bars:
                    height = (place - 0.36 if lane.is_above else place + 0.02, 0.34)
                    axis.broken_barh(bars, height, facecolors=lane.colour, linewidth=0)
                if lane is COMMUNICATION:
                    exchange_ms = sum(length for _, length in bars)
            whole_ms = 1e-3 * (it.span[1] - it.span[0])
            texts.append(
                f"rank {it.trace.rank} {significant(whole_ms, 3)} ms, of it collectives "
                f"{significant(exchange_ms, 3)} ms"
            )
        axis.set_xlim(0, 1e-3 * width)
        return texts

    device = group.device
    cell = cell_label(place_of(result.cell), device) if result.cell else result.slug
    cell = named(group, cell)
    one_clock = len({it.trace.host for it in iterations}) == 1
    left_out = len(result.record.ranks) - len(iterations) if result.record else 0
    return rows(
        "One iteration",
        iterations,
        draw,
        x="ms since the iteration began",
        alt=f"One iteration of {cell}: ",
        caption=[
            CAPTION.format(cell=cell, rank=iterations[0].trace.rank),
            "All ranks have one clock." if one_clock else SEVERAL_CLOCKS,
            f"Not drawn: {left_out} more ranks, see their traces in attempts/." if left_out else "",
        ],
        legend={lane.name: lane.colour for lane in lanes},
        inches=0.5,
        between=", ",
    )


def _origins(iterations: Sequence[Iteration]) -> list[float]:
    """Return the zero of each rank's time: one for all if they have one clock."""
    if len({it.trace.host for it in iterations}) == 1:
        return [min(it.span[0] for it in iterations)] * len(iterations)
    ends = [
        max((end for _, end in it.spans(COMMUNICATION)), default=it.span[1]) for it in iterations
    ]
    before = max(end - it.span[0] for end, it in zip(ends, iterations, strict=True))
    return [end - before for end in ends]


def merged(spans: Iterable[Span], gap: float) -> list[Span]:
    """Return spans in order, those joined that are not more than a gap apart.

    >>> merged([(4, 5), (0, 2), (1, 3)], 0.5)
    [(0, 3), (4, 5)]
    """
    result: list[Span] = []
    for start, end in sorted(spans):
        if result and start <= result[-1][1] + gap:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((start, end))
    return result
