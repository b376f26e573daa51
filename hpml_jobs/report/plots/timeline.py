"""Picture of one iteration on every rank, from the profiler's kept traces."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from hpml_jobs.report.merge import traces
from hpml_jobs.report.merge.cells import CellResult
from hpml_jobs.report.merge.rows import place_of
from hpml_jobs.report.merge.traces import NoTraceError, RankTrace, TraceEvent
from hpml_jobs.report.plots import style
from hpml_jobs.report.plots.picture import Picture, listed, sentences
from hpml_jobs.report.report import Report, ReportGroup
from hpml_jobs.report.text.captions import cell_label
from hpml_jobs.report.text.numbers import significant

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CAPTION = (
    "torch.profiler, {cell}, first run: the iteration of median length on rank {rank}, and the "
    "same one on the others. Above: what a rank computes; below: collectives, waiting for other "
    "ranks included. The profiler lengthens an iteration. {clocks}"
)
SAME_HOST = "All ranks have one clock."
HOSTS = "Ranks of several hosts are aligned at the end of their last collective."

SHORTEST = 1e-3
"""Gaps shorter than this share of the picture are closed: they cannot be seen."""

_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
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


def _is_copy(event: TraceEvent) -> bool:
    return event.cat in ("gpu_memcpy", "gpu_memset")


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
    Lane(
        "kernels",
        style.BLUE,
        True,
        lambda e: e.cat == "kernel" and not _is_collective(e),
    ),
    Lane("copies", style.ORANGE, True, _is_copy),
    COMMUNICATION,
)
"""Later lanes cover earlier ones."""


class Span(NamedTuple):
    """A time from a start to an end, in microseconds."""

    start: float
    end: float


class Iteration(NamedTuple):
    """One iteration of one rank: its events, and where it begins and ends."""

    trace: RankTrace
    span: Span
    events: list[TraceEvent]


def timeline(report: Report) -> Picture | None:
    """Plot one iteration of every rank of a cell; None if no cell has kept its trace."""
    for group, result in _traced(report):
        try:
            iterations = same_iteration(traces.read_traces(result))
        except NoTraceError:  # the next cell may have one that can be read
            continue
        if iterations:
            return _picture(report, group, result, iterations)
    return None


def _traced(report: Report) -> list[tuple[ReportGroup, CellResult]]:
    """Return the cells with traces: the one to ask for first, then those with the most GPUs."""
    cells = [
        (group, result)
        for group in report.groups
        for result in group.source.cells
        if traces.has_traces(result)
    ]

    def rank(pair: tuple[ReportGroup, CellResult]) -> tuple[bool, bool, int, int]:
        group, cell = pair[0], pair[1].cell
        if cell is None:
            return (False, False, 0, 0)
        asked = group.choice.ask.candidate.row.place if group.choice and group.choice.ask else None
        return (cell.gpus > 1, place_of(cell) == asked, cell.gpus, cell.batch)

    return sorted(cells, key=rank, reverse=True)


def same_iteration(of_ranks: Sequence[RankTrace]) -> list[Iteration]:
    """Return the iteration of median length of the first rank, and the same one of the others.

    An iteration begins where the batch is loaded. The first has more to do than the others, and
    the end of the last is not in the trace. Empty without three iterations.
    """
    starts = [_starts(trace) for trace in of_ranks]
    count = min(map(len, starts), default=0)
    if count < 4:
        return []
    lengths = [starts[0][n + 1] - starts[0][n] for n in range(count - 1)]
    typical = median(lengths[1:])
    number = min(range(1, count - 1), key=lambda n: abs(lengths[n] - typical))
    result = []
    for trace, begins in zip(of_ranks, starts, strict=True):
        span = Span(begins[number], begins[number + 1])
        events = [e for e in trace.events if e.ts < span.end and e.end > span.start]
        result.append(Iteration(trace, span, events))
    return result


def _starts(trace: RankTrace) -> list[float]:
    """Return where the iterations begin: batches are loaded once in each."""
    return sorted(event.ts for event in trace.events if event.name.startswith(_LOADER))


def _picture(
    report: Report, group: ReportGroup, result: CellResult, iterations: list[Iteration]
) -> Picture:
    on_gpu = any(event.cat in _DEVICE for it in iterations for event in it.events)
    lanes = ON_GPU if on_gpu else ON_CPU
    figure, (axis,) = style.panels(1, height=0.7 + 0.5 * len(iterations))
    origins = _origins(iterations)
    width = max(it.span.end - origin for it, origin in zip(iterations, origins, strict=True))
    shares: dict[int, float] = {}
    for place, (iteration, origin) in enumerate(zip(iterations, origins, strict=True)):
        for lane in lanes:
            spans = merged(_clipped(iteration, lane), SHORTEST * width)
            if lane is COMMUNICATION:
                shares[place] = sum(span.end - span.start for span in spans)
            _draw(axis, place, lane, [(s.start - origin, s.end - origin) for s in spans])
    hosts = {it.trace.host for it in iterations}
    axis.set_yticks(range(len(iterations)), [_label(it.trace, hosts) for it in iterations])
    axis.set_ylim(len(iterations) - 0.45, -0.55)
    axis.set_xlim(0, 1e-3 * width)
    axis.set_xlabel("ms since the iteration began")
    axis.grid(visible=False, axis="y")
    style.legend(figure, {lane.name: lane.colour for lane in lanes})
    device = group.source.device
    cell = cell_label(place_of(result.cell), device) if result.cell else result.slug
    cell = f"{report.name(group)}: {cell}" if report.several else cell
    record = result.record
    left_out = len(record.ranks) - len(iterations) if record else 0
    caption = sentences(
        CAPTION.format(
            cell=cell,
            rank=iterations[0].trace.rank,
            clocks=SAME_HOST if len(hosts) == 1 else HOSTS,
        ),
        f"Not drawn: {left_out} more ranks, see their traces in attempts/." if left_out else "",
    )
    texts = [
        f"rank {it.trace.rank} {_ms(it.span.end - it.span.start)} ms, of it collectives "
        f"{_ms(shares[place])} ms"
        for place, it in enumerate(iterations)
    ]
    return Picture("One iteration", figure, f"One iteration of {cell}: {listed(texts)}.", caption)


def _origins(iterations: Sequence[Iteration]) -> list[float]:
    """Return the zero of each rank's time: one for all if they have one clock."""
    if len({it.trace.host for it in iterations}) == 1:
        return [min(it.span.start for it in iterations)] * len(iterations)
    ends = [
        max((s.end for s in _clipped(it, COMMUNICATION)), default=it.span.end) for it in iterations
    ]
    before = max(end - it.span.start for end, it in zip(ends, iterations, strict=True))
    return [end - before for end in ends]


def _clipped(iteration: Iteration, lane: Lane) -> Iterator[Span]:
    """Yield the parts of a lane's events that lie in the iteration."""
    start, end = iteration.span
    for event in iteration.events:
        if lane.has(event):
            yield Span(max(event.ts, start), min(event.end, end))


def merged(spans: Iterable[Span], gap: float) -> list[Span]:
    """Return spans in order, those joined that are not more than a gap apart.

    >>> merged([Span(4, 5), Span(0, 2), Span(1, 3)], 0.5)
    [Span(start=0, end=3), Span(start=4, end=5)]
    """
    result: list[Span] = []
    for span in sorted(spans):
        if result and span.start <= result[-1].end + gap:
            result[-1] = Span(result[-1].start, max(result[-1].end, span.end))
        else:
            result.append(span)
    return result


def _draw(axis: "Axes", place: int, lane: Lane, spans: Sequence[tuple[float, float]]) -> None:
    if spans:
        axis.broken_barh(
            [(1e-3 * start, 1e-3 * (end - start)) for start, end in spans],
            (place - 0.36 if lane.is_above else place + 0.02, 0.34),
            facecolors=lane.colour,
            linewidth=0,
        )


def _label(trace: RankTrace, hosts: set[str]) -> str:
    host = f" on {trace.host.partition('.')[0]}" if len(hosts) > 1 else ""
    return f"rank {trace.rank}{host}"


def _ms(microseconds: float) -> str:
    return significant(1e-3 * microseconds, 3)
