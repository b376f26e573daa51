"""Which numbers stand where: the lab's Q1 table and Tables 1, 2 and 3."""

from collections.abc import Callable, Mapping, Sequence

from hpml_jobs.cell import Device, Settled, Strategy
from hpml_jobs.report import captions, notes
from hpml_jobs.report.checks import Alike
from hpml_jobs.report.entries import Entry, Row, row_order
from hpml_jobs.report.layout import Block, Line, Table
from hpml_jobs.report.notes import BASELINE, Place
from hpml_jobs.report.numbers import DASH, count, gb_per_s, ratio, seconds
from hpml_jobs.slurm import Outcome


class Scope(Settled, frozen=True, kw_only=True):
    """What the tables of one group are made from.

    `elsewhere` tells in which other group of unlike records a place has a number; `setting` is
    the line of a caption that is the same for all of them.
    """

    alike: Alike
    device: Device
    entries: tuple[Entry, ...]
    setting: str
    elsewhere: Mapping[Place, int]


class Part(Settled, frozen=True, kw_only=True):
    """One strategy beside the baseline: rows and batches found, and the entry at each place."""

    scope: Scope
    strategy: Strategy
    rows: tuple[Row, ...]
    batches: tuple[int, ...]

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries at these places."""
        found = self.scope.entries
        return tuple(e for e in found if e.row in self.rows and e.batch_per_gpu in self.batches)

    @property
    def parallel_rows(self) -> tuple[Row, ...]:
        """Rows with more than one GPU: those that communicate."""
        return tuple(row for row in self.rows if row[0] > 1)


def part(scope: Scope, strategy: Strategy) -> Part:
    """The part of a group that belongs to one strategy."""
    own = [entry for entry in scope.entries if entry.strategy is strategy]
    return Part(
        scope=scope,
        strategy=strategy,
        rows=tuple(sorted({BASELINE, *(entry.row for entry in own)}, key=row_order)),
        batches=tuple(sorted({entry.batch_per_gpu for entry in own})),
    )


def q1(scope: Scope) -> Table:
    """Time of one epoch on one GPU for each batch."""
    own = [entry for entry in scope.entries if entry.is_baseline]
    places = {(BASELINE, entry.batch_per_gpu) for entry in own}
    unit = captions.unit(scope.device)
    return Table(
        label="q1",
        title=f"Q1: one epoch on 1 {unit}",
        corner="batch",
        blocks=tuple(Block(head=head) for head in ("train_s", "epoch_s", "iterations")),
        lines=tuple(Line(label=str(entry.batch_per_gpu), texts=_q1(entry)) for entry in own),
        caption=(
            captions.Q1.format(unit=unit),
            f"{captions.runs(own)} {captions.loader_workers(own, scope.device)}",
        ),
        setting=scope.setting,
        notes=_notes(scope, own, places),
    )


def _q1(entry: Entry) -> tuple[str, ...]:
    timing = entry.timing
    if timing is None:
        return _mark(entry), DASH, DASH
    return seconds(timing.train_s), seconds(timing.epoch_s), count(timing.iterations)


def table1(part: Part) -> Table:
    """Time and speedup."""
    device, entries = part.scope.device, part.entries
    return Table(
        label=f"table1-{part.strategy.value}",
        title=f"Table 1: time and speedup, {part.strategy.value}",
        corner="Table 1",
        blocks=_blocks(part, "Time(s)", "Speedup"),
        lines=_lines(part, part.rows, _time_and_speedup),
        caption=(
            f"{captions.TIME} Speedup: Time of 1-{captions.unit(device)} / Time.",
            f"{captions.baseline(entries, part.batches, device)} {captions.runs(entries)}",
            captions.loader_workers(entries, device),
        ),
        setting=part.scope.setting,
        notes=_notes(part.scope, entries, _places(part)),
    )


def _time_and_speedup(entry: Entry) -> tuple[str, ...]:
    time = seconds(entry.timing.epoch_s) if entry.timing else _mark(entry)
    if entry.is_baseline and entry.timing:
        return time, "1"
    return time, DASH if entry.speedup is None else ratio(entry.speedup)


def table2(part: Part) -> Table:
    """Seconds of computation and of communication, by the lab's residual method."""
    return Table(
        label=f"table2-{part.strategy.value}",
        title=f"Table 2: computation and communication by the lab residual, {part.strategy.value}",
        corner="Table 2",
        blocks=_blocks(part, "Compute", "Comm"),
        lines=_lines(part, part.parallel_rows, _compute_and_comm),
        caption=(captions.RESIDUAL, *_residual_caption(part)),
        setting=part.scope.setting,
        notes=_notes(part.scope, part.entries, _places(part)),
    )


def _compute_and_comm(entry: Entry) -> tuple[str, ...]:
    if entry.residual is None:
        return _mark(entry), DASH
    return seconds(entry.residual.compute_s), seconds(entry.residual.comm_s)


def table3(part: Part) -> Table:
    """Bus bandwidth in GB/s (1e9 bytes per second), by the lab's residual method."""
    sizes = {entry.timing.gradient_bytes for entry in part.entries if entry.timing}
    size = " or ".join(count(size) for size in sorted(sizes)) or "unknown"
    nominal = (captions.NOMINAL,) if part.strategy is Strategy.DP else ()
    return Table(
        label=f"table3-{part.strategy.value}",
        title=f"Table 3: bandwidth by the lab residual, {part.strategy.value}",
        corner="Table 3 (GB/s, nominal)" if nominal else "Table 3 (GB/s)",
        blocks=_blocks(part),
        lines=_lines(part, part.parallel_rows, _bandwidth),
        caption=(
            captions.BANDWIDTH.format(gradient_bytes=size),
            *nominal,
            *_residual_caption(part),
        ),
        setting=part.scope.setting,
        notes=(
            *notes.no_bandwidth(part.entries, part.scope.device),
            *_notes(part.scope, part.entries, _places(part)),
        ),
    )


def _bandwidth(entry: Entry) -> tuple[str, ...]:
    if entry.residual is None:
        return (_mark(entry),)
    speed = entry.residual.bus_gb_per_s
    return (DASH if speed is None else gb_per_s(speed),)


def _residual_caption(part: Part) -> tuple[str, ...]:
    device, entries = part.scope.device, part.entries
    baseline = captions.baseline_train(entries, part.batches, device)
    return (
        f"{baseline} {captions.runs(entries)}",
        captions.loader_workers(entries, device),
    )


def _mark(entry: Entry) -> str:
    """What stands in place of a number."""
    return "OOM" if entry.timing is None and entry.outcome is Outcome.OOM else DASH


def _blocks(part: Part, *columns: str) -> tuple[Block, ...]:
    unit = captions.unit(part.scope.device)
    return tuple(Block(head=f"batch {batch} per {unit}", columns=columns) for batch in part.batches)


def _lines(
    part: Part, rows: Sequence[Row], texts: Callable[[Entry], tuple[str, ...]]
) -> tuple[Line, ...]:
    """A line per row; a place that nobody asked for shows the dash like one without a number."""
    at = {(entry.row, entry.batch_per_gpu): texts(entry) for entry in part.entries}
    width = len(next(iter(at.values())))
    return tuple(
        Line(
            label=captions.row_label(row, part.scope.device),
            texts=tuple(
                text for batch in part.batches for text in at.get((row, batch), (DASH,) * width)
            ),
        )
        for row in rows
    )


def _places(part: Part) -> set[Place]:
    return {(row, batch) for row in part.rows for batch in part.batches}


def _notes(scope: Scope, entries: Sequence[Entry], places: set[Place]) -> tuple[str, ...]:
    return (
        *notes.absences(scope.alike, entries, places, scope.device, scope.elsewhere),
        *notes.warnings(scope.alike.cells, places),
    )
