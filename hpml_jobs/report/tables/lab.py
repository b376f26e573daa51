"""Which measured numbers stand where: the lab's Q1 table and Tables 1, 2 and 3."""

from collections.abc import Callable, Iterable, Sequence

from hpml_jobs.report.merge.entries import BASELINE_ROW, Entry, Place, Row
from hpml_jobs.report.merge.scope import Part, Scope
from hpml_jobs.report.table import Block, Line, Table
from hpml_jobs.report.text import captions, notes
from hpml_jobs.report.text import marks as judged
from hpml_jobs.report.text.numbers import DASH, OOM, count, gb_per_s, ratio, seconds
from hpml_jobs.slurm.states import Outcome


def q1(scope: Scope) -> Table:
    """Time of one epoch on one GPU for each batch."""
    own = [entry for entry in scope.entries if entry.is_baseline]
    places = {(BASELINE_ROW, entry.batch_per_gpu) for entry in own}
    unit = captions.unit(scope.device)
    return Table(
        label="q1",
        title=f"Q1: one epoch on 1 {unit}",
        corner="batch",
        blocks=tuple(Block(head=head) for head in ("train_s", "epoch_s", "iterations")),
        lines=tuple(
            Line(label=str(entry.batch_per_gpu), texts=judged.marked(scope, entry, _q1(entry)))
            for entry in own
        ),
        caption=(
            captions.Q1.format(unit=unit),
            f"{captions.runs(own)} {captions.loader_workers(own, scope.device)}",
        ),
        setting=scope.setting,
        notes=(*_judged(scope, own), *without_train(own), *absent(scope, own, places)),
    )


def _q1(entry: Entry) -> tuple[str, ...]:
    timing = entry.timing
    if timing is None:
        return mark(entry), DASH, DASH
    return known(timing.train_s, seconds), seconds(timing.epoch_s), count(timing.iterations)


def without_train(entries: Iterable[Entry]) -> list[str]:
    """A line where seconds without data loading are unknown."""
    unknown = any(entry.timing and entry.timing.train_s is None for entry in entries)
    return [captions.NO_TRAIN] if unknown else []


def table1(part: Part) -> Table:
    """Time and speedup."""
    device, entries = part.scope.device, part.entries
    return Table(
        label=f"table1-{part.strategy.value}",
        title=f"Table 1: time and speedup, {part.strategy.value}",
        corner="Table 1",
        blocks=blocks(part, "Time(s)", "Speedup"),
        lines=lines(part, part.rows, _time_and_speedup),
        caption=(
            f"{captions.TIME} Speedup: Time of 1-{captions.unit(device)} / Time.",
            f"{captions.baseline(entries, part.batches, device)} {captions.runs(entries)}",
            captions.loader_workers(entries, device),
        ),
        setting=part.scope.setting,
        notes=(*_judged(part.scope, entries), *absent(part.scope, entries, part.places)),
    )


def _time_and_speedup(entry: Entry) -> tuple[str, ...]:
    time = seconds(entry.timing.epoch_s) if entry.timing else mark(entry)
    if entry.is_baseline and entry.timing:
        return time, "1"
    return time, known(entry.speedup, ratio)


def table2(part: Part) -> Table:
    """Measured seconds of computation and of exposed communication."""
    how = "as reported elsewhere" if part.scope.imported else "measured"
    return Table(
        label=f"table2-{part.strategy.value}",
        title=f"Table 2: computation and exposed communication, {how}, {part.strategy.value}",
        corner="Table 2 (s)",
        blocks=blocks(part, "Compute", "Comm"),
        lines=lines(part, part.parallel_rows, _compute_and_comm),
        caption=(
            captions.REPORTED if part.scope.imported else captions.MEASURED,
            captions.runs(part.parallel_entries),
        ),
        setting=part.scope.setting,
        notes=(*_unmeasured(part, _compute_and_comm), *_below(part)),
    )


def _compute_and_comm(entry: Entry) -> tuple[str, ...]:
    if entry.values is None:
        return mark(entry), DASH
    return known(entry.values.compute_s, seconds), known(entry.values.comm_exposed_s, seconds)


def table3(part: Part) -> Table:
    """Measured bandwidth in GB/s (1e9 bytes per second) of the gradients."""
    words = captions.BANDWIDTH[part.strategy.traffic.bandwidth]
    return Table(
        label=f"table3-{part.strategy.value}",
        title=f"Table 3: {words.title}, {part.strategy.value}",
        corner=f"Table 3 (GB/s{words.aside})",
        blocks=blocks(part),
        lines=lines(part, part.parallel_rows, _bandwidth),
        caption=(words.measured, captions.runs(part.parallel_entries)),
        setting=part.scope.setting,
        notes=(*_unmeasured(part, _bandwidth), *_below(part)),
    )


def _bandwidth(entry: Entry) -> tuple[str, ...]:
    if entry.timing is None:
        return (mark(entry),)
    return (known(entry.bandwidth.lab_gb_per_s if entry.bandwidth else None, gb_per_s),)


def _unmeasured(part: Part, texts: Callable[[Entry], tuple[str, ...]]) -> list[str]:
    """A line for each reason why a cell that has its time has no number in this table."""
    return notes.by_reason(
        (
            (_why_unmeasured(part, entry), (entry.row, entry.batch_per_gpu))
            for entry in part.parallel_entries
            if entry.timing and texts(entry)[0] == DASH
        ),
        lambda row: captions.row_label(row, part.scope.device),
    )


def _why_unmeasured(part: Part, entry: Entry) -> str:
    records = part.scope.records(entry)
    files = sorted({record.imported.file for record in records if record.imported})
    if files:
        return f"{', '.join(files)} does not tell"
    if all(record.instrumented is None for record in records):
        return "not measured, protocol=lab ends before the instrumented epoch"
    return "not measured, no collective of gradients was recorded"


def _judged(scope: Scope, entries: Sequence[Entry]) -> list[str]:
    return judged.failures(scope, entries) + judged.doubts(scope, entries)


def _below(part: Part) -> list[str]:
    entries, scope = part.parallel_entries, part.scope
    places = {(row, batch) for row, batch in part.places if row != BASELINE_ROW}
    return marks_explained(part) + absent(scope, entries, places)


def marks_explained(part: Part) -> list[str]:
    """Where the reason for the marks in a table without reasons stands."""
    failed = [entry for entry in part.parallel_entries if part.scope.failed(entry)]
    return [f"{judged.MARK} fails a check, the reason stands under Table 1"] if failed else []


def mark(entry: Entry) -> str:
    """What stands in place of a number."""
    return OOM if entry.timing is None and entry.outcome is Outcome.OOM else DASH


def known(value: float | None, words: Callable[[float], str]) -> str:
    """A number in words, or the dash."""
    return DASH if value is None else words(value)


def blocks(part: Part, *columns: str) -> tuple[Block, ...]:
    """A block of columns for each batch."""
    unit = captions.unit(part.scope.device)
    return tuple(Block(head=f"batch {batch} per {unit}", columns=columns) for batch in part.batches)


def lines(
    part: Part, rows: Iterable[Row], texts: Callable[[Entry], tuple[str, ...]]
) -> tuple[Line, ...]:
    """A line per row; a place that nobody asked for shows the dash like one without a number."""
    at = {
        (entry.row, entry.batch_per_gpu): judged.marked(part.scope, entry, texts(entry))
        for entry in part.entries
    }
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


def absent(scope: Scope, entries: Sequence[Entry], places: set[Place]) -> list[str]:
    """Lines for what is not there, then for what is to be known of what is."""
    return [
        *notes.absences(scope.alike, entries, places, scope.device, scope.elsewhere),
        *notes.warnings(scope.alike.cells, places),
    ]
