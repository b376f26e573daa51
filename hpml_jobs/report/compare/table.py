"""Table of the comparison of two studies: a line per cell that both measured.

The rules are in docs/compare.md.
"""

from collections.abc import Callable, Iterator

import msgspec

from hpml_jobs.core.statistics import Interval
from hpml_jobs.report.compare import notes, words
from hpml_jobs.report.compare.rules import ComparedCell, ComparedGroup
from hpml_jobs.report.frame.builder import (
    Columns,
    TableText,
    column,
    place_columns,
    ungrouped_table,
)
from hpml_jobs.report.frame.captions import cell_label
from hpml_jobs.report.frame.decision import Decision
from hpml_jobs.report.frame.marks import MARK
from hpml_jobs.report.frame.numbers import percent, seconds
from hpml_jobs.report.frame.table import Line, Table

PARTS = {
    "compute_s": "Compute, s",
    "comm_exposed_s": "exposed comm., s",
    "stall_s": "stall, s",
}
"""The parts of an epoch beside it, with their headings."""

SPLIT = "Compute and exposed communication: instrumented epoch. Stall: timed epoch."


def comparison_table(group: ComparedGroup, limit: float | None) -> Table:
    """Return the table of a compared group, with what became slower and what limits it below."""
    device, cells = group.new.device, group.measured
    heads = [*_heads(group), *_sheet_heads()]
    caption = (
        words.caption(group.new),
        *((SPLIT,) if any(cell.changes() for cell in cells) else ()),
    )
    is_imported = group.old.imported and group.new.imported
    text = TableText("compare", "Comparison", "" if is_imported else "timed epoch", caption)
    items = [(cell_label(cell.place, device), cell) for cell in cells]
    table = ungrouped_table(group.new.setting, text, items, heads, notes.notes(group, limit))
    lines = zip(table.lines, cells, strict=True)
    marked = tuple(_marked(line) if cell.is_doubtful else line for line, cell in lines)
    return msgspec.structs.replace(table, lines=marked)


def _marked(line: Line) -> Line:
    return Line(label=line.label, texts=(f"{MARK}{line.texts[0]}", *line.texts[1:]))


def verdict(cell: ComparedCell) -> str:
    """Return what the runs of a cell say, in a few words."""
    match cell.decision:
        case None:
            return "a check failed"
        case Decision.SAME:
            return "no difference seen"
        case decision:
            return decision.value


def _heads(group: ComparedGroup) -> Iterator[Columns[ComparedCell]]:
    yield Columns("", place_columns(lambda cell: cell.place.setup))
    yield Columns("", (column("batch", "", lambda cell: cell.place.batch_per_gpu),))
    yield _sides("epoch_s", f"{group.new.time_word}, s", group.new.time_word)
    yield Columns(
        "change, %",
        (
            column("", "", lambda cell: cell.ratio.estimate - 1, words.percents),
            column("", "interval", lambda cell: cell.ratio.interval, _interval),
        ),
    )
    yield Columns("verdict", (column("verdict", "", verdict),), words=True)
    yield Columns(
        "could show, %",
        (column("smallest_difference", "", lambda cell: cell.smallest_difference, percent),),
    )
    for name, head in PARTS.items():
        if any(name in cell.changes() for cell in group.measured):
            yield _sides(name, head)
    yield Columns(
        "runs",
        (
            column("runs_a", "A", lambda cell: len(cell.old.runs)),
            column("runs_b", "B", lambda cell: len(cell.new.runs)),
        ),
    )


def _sides(name: str, head: str, stem: str = "") -> Columns[ComparedCell]:
    """Return the columns of a median in both studies."""
    stem = stem or name.removesuffix("_s")
    return Columns(
        head,
        (
            column(f"{stem}_a_s", "A", lambda cell: cell.old.median_s(name), seconds),
            column(f"{stem}_b_s", "B", lambda cell: cell.new.median_s(name), seconds),
        ),
    )


def _interval(interval: Interval) -> str:
    return f"[{percent(interval.low - 1)}, {percent(interval.high - 1)}]"


def _sheet_heads() -> Iterator[Columns[ComparedCell]]:
    """Yield the columns for programs."""
    yield Columns(
        "",
        (
            column("ratio", "", lambda cell: cell.ratio.estimate),
            column("ratio_low", "", _end(lambda interval: interval.low)),
            column("ratio_high", "", _end(lambda interval: interval.high)),
            column("p", "", lambda cell: cell.p),
        ),
    )


def _end(of: Callable[[Interval], float]) -> Callable[[ComparedCell], float | None]:
    def end(cell: ComparedCell) -> float | None:
        interval = cell.ratio.interval
        return of(interval) if interval else None

    return end
