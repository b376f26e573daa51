"""Table of the comparison of two studies, with notes on what became slower and what limits it.

The rules are in docs/compare.md.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple, Self

import msgspec

from hpml_jobs.compare import words
from hpml_jobs.compare.power import runs_to_show, smallest_difference
from hpml_jobs.compare.reference import ReferenceCell, ReferenceGroup
from hpml_jobs.compare.rules import (
    PARTS,
    ComparedCell,
    ComparedGroup,
    StudyComparison,
)
from hpml_jobs.compare.words import label, listed, no_number, size
from hpml_jobs.core.statistics import Interval
from hpml_jobs.core.text import counted, percent_text
from hpml_jobs.report.frame.captions import cell_label, cell_words
from hpml_jobs.report.frame.numbers import percent, seconds
from hpml_jobs.report.frame.table import (
    Column,
    Number,
    Table,
    TableText,
    columns_of,
    item_table,
)
from hpml_jobs.results.decision import LEAST_RUNS, MOST_RUNS, Decision

SPLIT = "Compute and exposed communication: instrumented epoch. Stall: timed epoch."


def _interval(interval: Interval) -> str:
    return f"[{percent(interval.low - 1)}, {percent(interval.high - 1)}]"


class ComparedLine(NamedTuple):
    """Medians of a cell in both studies, A and B, and what the runs say of the change."""

    epoch_a_s: Annotated[Number, Column("A", seconds, "{time}, s", doubt="doubts_a")]
    epoch_b_s: Annotated[Number, Column("B", seconds, "{time}, s", doubt="doubts_b")]
    change: Annotated[
        float, Column("", words.percents, "change, %", doubt="doubts_change")
    ]
    interval: Annotated[Interval | None, Column("interval", _interval, "change, %")]
    verdict: Annotated[str, Column("verdict", words=True)]
    smallest_difference: Annotated[Number, Column("could show, %", percent)]
    compute_a_s: Annotated[Number, Column("A", seconds, "Compute, s")]
    compute_b_s: Annotated[Number, Column("B", seconds, "Compute, s")]
    comm_exposed_a_s: Annotated[Number, Column("A", seconds, "exposed comm., s")]
    comm_exposed_b_s: Annotated[Number, Column("B", seconds, "exposed comm., s")]
    stall_a_s: Annotated[Number, Column("A", seconds, "stall, s")]
    stall_b_s: Annotated[Number, Column("B", seconds, "stall, s")]
    runs_a: Annotated[int, Column("A", str, "runs")]
    runs_b: Annotated[int, Column("B", str, "runs")]
    doubts_a: bool
    doubts_b: bool
    doubts_change: bool

    @classmethod
    def of(cls, cell: ComparedCell) -> Self:
        """Return the line of a cell."""
        medians = {}
        for name in ("epoch_s", *PARTS):
            part = name.removesuffix("_s")
            medians[f"{part}_a_s"] = cell.old.median_s(name)
            medians[f"{part}_b_s"] = cell.new.median_s(name)
        return cls(
            **medians,
            change=cell.ratio.estimate - 1,
            interval=cell.ratio.interval,
            verdict=verdict(cell),
            smallest_difference=cell.smallest_difference,
            runs_a=len(cell.old.runs),
            runs_b=len(cell.new.runs),
            doubts_a=cell.old.is_doubtful,
            doubts_b=cell.new.is_doubtful,
            doubts_change=cell.is_doubtful,
        )


def comparison_table(group: ComparedGroup, limit: float | None) -> Table:
    """Return the table of a compared group, with what became slower and what limits it below."""
    device, cells = group.new.device, group.measured
    compared_parts = {name for cell in cells for name in cell.changes()}
    caption = [words.caption(group.new)]
    if compared_parts:
        caption.append(SPLIT)
    is_imported = group.old.imported and group.new.imported
    what = "" if is_imported else "timed epoch"
    text = TableText("compare", "Comparison", what, tuple(caption))
    unknown = [name.removesuffix("_s") for name in PARTS if name not in compared_parts]
    heads = columns_of(
        ComparedLine,
        without=[f"{name}_{side}_s" for name in unknown for side in ("a", "b")],
        time=group.new.time_word,
    )
    items = [(cell_label(cell.place, device), ComparedLine.of(cell)) for cell in cells]
    table = item_table([], text, items, heads, notes(group, limit))
    return msgspec.structs.replace(table, setting=group.new.setting)


def verdict(cell: ComparedCell) -> str:
    """Return what the runs of a cell say, in a few words."""
    match cell.decision:
        case None:
            return "a check failed"
        case Decision.SAME:
            return "no difference seen"
        case decision:
            return decision.value


SHOWN = 0.05
"""The difference for which the needed runs are said, without a limit of the user."""

EXPLAINED = 5
"""The most cells for which the table says what became slower or faster."""


def days(comparison: StudyComparison) -> list[str]:
    """Return a line if the studies were measured on other days: machines change."""
    old, new = (side.measured[:10] for side in (comparison.old, comparison.new))
    return (
        [f"measured on different days (A | B): {old} | {new}"]
        if old and new and old != new
        else []
    )


def conditions(group: ComparedGroup) -> list[str]:
    """Return the conditions in which two groups differ, a line per kind, the worst first."""
    lines = list(_differences(group))
    is_same = not lines
    for side, missing in group.unrecorded.items():
        lines.append(f"not recorded in {_SIDES[side]}: {', '.join(missing)}")
    sides = (("A", group.old), ("B", group.new))
    imported = [side for side, values in sides if values.imported]
    if imported:
        lines.append(
            f"imported in {' and '.join(imported)}: only the reported hardware and software is "
            "compared"
        )
        return lines
    if group.without_clocks:
        lines.append("GPU clocks are not recorded for all cells")
    if is_same:
        same = "the same hardware, software and settings"
        lines.insert(0, f"{same}, as far as recorded" if lines else same)
    return lines


_SIDES = {"old": "A", "new": "B"}


def _differences(group: ComparedGroup) -> Iterator[str]:
    """Yield the conditions with two values, a line per kind, then the cells with other clocks."""
    for kind, pairs in group.by_kind.items():
        values = "; ".join(
            f"{name}: {old} | {new}" for name, (old, new) in pairs.items()
        )
        yield f"different {kind.value} (A | B): {values}"
    for clock, cells in group.other_clocks.items():
        values = "; ".join(
            f"{label(cell, group)}: {cell.old.clocks[clock]:g} | {cell.new.clocks[clock]:g}"
            for cell in cells
        )
        yield f"different {clock} (A | B): {values}"


def notes(group: ComparedGroup, limit: float | None) -> Iterator[str]:
    """Yield what became slower, then what limits the comparison, the most serious first."""
    changed = [
        c for c in group.measured if c.decision in (Decision.FASTER, Decision.SLOWER)
    ]
    changed.sort(key=size, reverse=True)
    for cell in changed[:EXPLAINED]:
        yield _what_changed(cell, group)
    if len(changed) > EXPLAINED:
        yield f"{len(changed) - EXPLAINED} more cells changed, by less than these"
    yield from _checks(group)
    for cell in group.measured:
        yield from _left_out(cell, group)
    yield from _power(group, limit or SHOWN)
    for cell in group.cells:
        if not cell.is_measured:
            yield f"not compared: {label(cell, group)}: {_why_not(cell)}"


def _what_changed(cell: ComparedCell, group: ComparedGroup) -> str:
    """Return by how many seconds the parts of a changed epoch changed, the largest first."""
    epoch = (cell.new.median_s("epoch_s") or 0) - (cell.old.median_s("epoch_s") or 0)
    changes = sorted(cell.changes().items(), key=lambda item: -abs(item[1]))
    parts = [f"{PARTS[name]} {_signed(change)} s" for name, change in changes]
    decision = cell.decision.value if cell.decision else ""
    text = f"{decision}: {label(cell, group)}: {group.new.time_word} {_signed(epoch)} s"
    if parts:
        text += f"; {', '.join(parts)}"
    return text


def _signed(value_s: float) -> str:
    text = seconds(value_s)
    return text if text.startswith("-") or text == "0" else f"+{text}"


def _checks(group: ComparedGroup) -> Iterator[str]:
    """Yield a line per check with its cells and sides: failures first."""
    for word, field, verb in (
        ("not decided", "failed", "failed"),
        ("doubtful", "warned", "warns"),
    ):
        for check, by_side in _cells_of_checks(group, field).items():
            first, *following = by_side.values()
            where = f"in {' and '.join(by_side)}: {listed(first)}"
            if any(labels != first for labels in following):
                where = "; ".join(
                    f"in {side}: {listed(labels)}" for side, labels in by_side.items()
                )
            why = "hpml-jobs collect --all shows the reason and the fix"
            yield f"{word}: the check {check} {verb} {where}; {why}"


def _cells_of_checks(
    group: ComparedGroup, field: str
) -> dict[str, dict[str, list[str]]]:
    """Return the labels of cells by check and side; `field` has the checks of a side."""
    sides: dict[str, dict[str, list[str]]] = {}
    for cell in group.measured:
        for side, values in (("A", cell.old), ("B", cell.new)):
            for check in getattr(values, field):
                of_check = sides.setdefault(check, {})
                of_check.setdefault(side, []).append(label(cell, group))
    return sides


def _left_out(cell: ComparedCell, group: ComparedGroup) -> Iterator[str]:
    for side, values in (("A", cell.old), ("B", cell.new)):
        if values.left_out:
            total = len(values.runs) + values.left_out
            yield (
                f"{label(cell, group)}: {values.left_out} of {counted(total, 'run')} in {side} "
                "not used, because the timed epoch was disturbed"
            )


def _power(group: ComparedGroup, wanted: float) -> Iterator[str]:
    """Yield the runs that undecided cells need to show a difference."""
    few = [cell for cell in group.measured if cell.decision is Decision.TOO_FEW]
    if few:
        yield f"{Decision.TOO_FEW.value}: {_labels(few, group)}: {_needed(few, wanted)}"
    weak = [cell for cell in group.measured if cell.could_hide(wanted)]
    if weak:
        yield (
            f"these runs cannot show a change of {percent_text(wanted)}: {_labels(weak, group)}: "
            f"{_needed(weak, wanted)}"
        )


def _labels(cells: Sequence[ComparedCell], group: ComparedGroup) -> str:
    return listed(label(cell, group) for cell in cells)


def _needed(cells: Sequence[ComparedCell], wanted: float) -> str:
    """Return the remedy in runs, for the cell that scatters most."""
    noise = max((cell.noise for cell in cells if cell.noise is not None), default=None)
    if noise is None:
        return words.needed_runs(LEAST_RUNS)
    runs = runs_to_show(wanted, noise)
    word = "largest scatter" if len(cells) > 1 else "scatter"
    scatter = f"{word} {percent(noise)} %"
    if runs is None:
        return (
            f"even {MOST_RUNS} runs of each cell would not show {percent_text(wanted)} "
            f"({scatter}): measure on a quiet machine"
        )
    smallest = percent(smallest_difference(runs, runs, noise) or wanted)
    return f"{words.needed_runs(runs)}, which shows {smallest} % ({scatter})"


def _why_not(cell: ComparedCell) -> str:
    sides = (("A", cell.old), ("B", cell.new))
    return ", ".join(
        f"{no_number(values)} in {side}" for side, values in sides if not values.runs
    )


def only_in(
    side: str, cells: Sequence[tuple[ReferenceGroup, ReferenceCell]]
) -> Iterator[str]:
    """Yield a line with the cells that only one study has."""
    labels = [cell_words(cell.place, group.device) for group, cell in cells]
    if labels:
        text = "; ".join(labels) if len(labels) <= 10 else listed(labels)
        yield f"only in {side}: {text}"
