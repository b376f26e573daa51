"""The comparison of two studies: the answer, a table per group, whether it passes a limit."""

from collections.abc import Iterable, Iterator
from statistics import median
from typing import Annotated, Any, NamedTuple

from hpml_jobs.compare.reference import Reference, ReferenceCell
from hpml_jobs.compare.rules import (
    HARDWARE,
    ComparedCell,
    ComparedGroup,
    Located,
    StudyComparison,
    compare_studies,
)
from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.text import counted, percent_text
from hpml_jobs.core.value import by_key
from hpml_jobs.report.frame.captions import cell_words, mark
from hpml_jobs.report.frame.numbers import percent, seconds
from hpml_jobs.report.frame.table import (
    Column,
    Table,
    TableText,
    columns_of,
    item_table,
)
from hpml_jobs.results.checks.result import names
from hpml_jobs.results.decision import LEAST_RUNS, Decision
from hpml_jobs.results.statistics import Interval

CAPTION = (
    "A and B: seconds per {timed} of the longest process, median over runs. Change: the median of "
    "B / A - 1 over all pairs of runs, so it can differ from that of the medians; with its 95 % "
    "interval. Slower or faster: p <= 5 % (Mann-Whitney) and more than 2 %, from 4 runs of each on."
)

FAILED = "doubtful, a check failed"
"""The verdict of a cell of which a check failed in A or B."""


def _percents(share: float) -> str:
    """Return a change of time in percent with its sign.

    >>> _percents(0.0789), _percents(-0.031), _percents(0.0)
    ('+7.9', '-3.1', '0')
    """
    text = percent(share)
    return text if text.startswith("-") or text == "0" else f"+{text}"


def _interval(interval: Interval) -> str:
    return f"[{percent(interval.low - 1)}, {percent(interval.high - 1)}]"


class ComparedLine(NamedTuple):
    """Medians of a cell in both studies, A and B, and what the runs say of the change."""

    epoch_a_s: Annotated[float, Column("A", seconds, "{timed}, s", doubt="doubts_a")]
    epoch_b_s: Annotated[float, Column("B", seconds, "{timed}, s", doubt="doubts_b")]
    change: Annotated[float, Column("", _percents, "change, %", doubt="doubts_change")]
    interval: Annotated[Interval | None, Column("interval", _interval, "change, %")]
    verdict: Annotated[str, Column("verdict", words=True)]
    runs_a: Annotated[int, Column("A", str, "runs")]
    runs_b: Annotated[int, Column("B", str, "runs")]
    doubts_a: bool
    doubts_b: bool
    doubts_change: bool


class ComparedStudies(NamedTuple):
    """A comparison in words: the answer, a table per group, and the cells of only one study.

    `failure` says why it does not pass the limit; empty if it does, or without a limit.
    """

    comparison: StudyComparison
    answer: str
    tables: list[Table]
    only: list[str]
    limit: float | None
    failure: str

    @property
    def document(self) -> dict[str, Any]:
        """The comparison as values for programs."""
        old, new, groups, only_old, only_new = self.comparison
        return {
            "a": old.study,
            "b": new.study,
            "answer": self.answer,
            "groups": [
                {
                    "timed": group.new.timed,
                    "setting_a": group.old.setting,
                    "setting_b": group.new.setting,
                    "differences": group.differences,
                    "cells": [_values(cell) for cell in group.measured],
                    "notes": table.notes,
                }
                for group, table in zip(groups, self.tables, strict=True)
            ],
            "only_in_a": [_place(cell) for _, cell in only_old],
            "only_in_b": [_place(cell) for _, cell in only_new],
            "limit": self.limit,
            "passes": None if self.limit is None else not self.failure,
            "failure": self.failure,
        }


def _values(cell: ComparedCell) -> dict[str, Any]:
    estimate, interval = cell.ratio
    return {
        **_place(cell.new),
        "verdict": cell.decision or FAILED,
        "ratio": estimate,
        "ratio_low": interval.low if interval else None,
        "ratio_high": interval.high if interval else None,
        "p": cell.p,
        "a": _side(cell.old),
        "b": _side(cell.new),
    }


def _place(cell: ReferenceCell) -> dict[str, Any]:
    return {
        "strategy": cell.strategy,
        "gpus": cell.gpus,
        "nodes": cell.nodes,
        "treatment": cell.treatment,
        "batch": cell.batch,
    }


def _side(cell: ReferenceCell) -> dict[str, Any]:
    return {
        "epoch_s": median(cell.epochs_s),
        "all_epoch_s": cell.epochs_s,
        "left_out": cell.left_out,
        "failed": cell.failed,
        "warned": cell.warned,
    }


def make_comparison(
    old: Reference, new: Reference, limit: float | None
) -> ComparedStudies:
    """Compare two studies; with a limit, say whether a cell may be slower by more than it.

    Raises:
        HpmlError: they have no cell in common.
    """
    comparison = compare_studies(old, new)
    if not comparison.groups:
        raise HpmlError(
            f"{old.study} and {new.study} have no cell in common (workload or script, "
            f"samples per epoch, GPUs, batch, strategy): {old.study} has "
            f"{_places(comparison.only_old)}; {new.study} has {_places(comparison.only_new)}"
        )
    sides = {"A": comparison.only_old, "B": comparison.only_new}
    return ComparedStudies(
        comparison,
        _answer(comparison),
        [_table(group) for group in comparison.groups],
        [f"only in {side}: {_places(cells)}" for side, cells in sides.items() if cells],
        limit,
        "" if limit is None else _failure(comparison, limit),
    )


def _places(cells: Iterable[Located]) -> str:
    """Return the first few cells, each with its workload."""
    labels = (
        f"{group.work[0]}, {cell_words(cell.place, group.device)}"
        for group, cell in cells
    )
    return names(labels, separator="; ")


def _answer(comparison: StudyComparison) -> str:
    """Return the number of cells by verdict, with the largest change of the first ones."""
    different = {name for group in comparison.groups for name in group.differences}
    unlike = sorted(HARDWARE & different)
    prefix = f"On different hardware ({', '.join(unlike)}): " if unlike else ""
    cells = [(group, cell) for group in comparison.groups for cell in group.measured]
    by_verdict = by_key((cell.decision, (group, cell)) for group, cell in cells)
    parts = []
    for decision in (*Decision, None):
        if decision not in by_verdict:
            continue
        group, largest = max(by_verdict[decision], key=lambda pair: _size(pair[1]))
        number = len(by_verdict[decision])
        change = f"{_words(group, largest)}: {_change(largest)}"
        change = f"largest: {change}" if number > 1 else change
        rows = counted(number, "row")
        parts.append(f"{decision or FAILED} in {rows} ({change})")
    counts = ", ".join(parts) or "no cell has a number in both"
    old, new = comparison.old.study, comparison.new.study
    return f"{prefix}{new} (B) compared with {old} (A): {counts}."


def _size(cell: ComparedCell) -> float:
    return abs(cell.ratio.estimate - 1)


def _words(group: ComparedGroup, cell: ComparedCell) -> str:
    """Return the name of a cell in words: `4 GPUs, batch 512`."""
    return cell_words(cell.new.place, group.new.device)


def _change(cell: ComparedCell) -> str:
    """Return a change with its interval: `+7.9 % [6.1, 9.9]`, with the mark of checks."""
    estimate, interval = cell.ratio
    shown = f" {_interval(interval)}" if interval else ""
    text = f"{_percents(estimate - 1)} %{shown}"
    return mark(text, is_doubtful=any(map(_is_doubtful, cell)))


def _table(group: ComparedGroup) -> Table:
    """Return the table of a compared group, with what limits the comparison below."""
    timed = group.new.timed
    caption = (CAPTION.format(timed=timed), group.new.setting)
    text = TableText("compare", "Comparison", "", caption)
    items = [(_words(group, cell), _line(cell)) for cell in group.measured]
    columns = columns_of(ComparedLine, timed=timed)
    return item_table([], text, items, columns, _notes(group))


def _line(cell: ComparedCell) -> ComparedLine:
    doubts_a, doubts_b = map(_is_doubtful, cell)
    return ComparedLine(
        epoch_a_s=median(cell.old.epochs_s),
        epoch_b_s=median(cell.new.epochs_s),
        change=cell.ratio.estimate - 1,
        interval=cell.ratio.interval,
        verdict=cell.decision or FAILED,
        runs_a=len(cell.old.runs),
        runs_b=len(cell.new.runs),
        doubts_a=doubts_a,
        doubts_b=doubts_b,
        doubts_change=doubts_a or doubts_b,
    )


def _is_doubtful(cell: ReferenceCell) -> bool:
    return bool(cell.failed or cell.warned)


def _notes(group: ComparedGroup) -> Iterator[str]:
    """Yield the conditions that differ, then what limits the comparison of which cells."""
    pairs = [
        f"{name}: {' | '.join(values)}" for name, values in group.differences.items()
    ]
    yield (
        f"different (A | B): {'; '.join(pairs)}"
        if pairs
        else "no recorded condition differs"
    )
    limits = by_key(
        (text, _words(group, cell)) for cell in group.cells for text in _limits(cell)
    )
    for text, labels in limits.items():
        yield f"{text}: {names(labels, separator='; ')}"


def _limits(cell: ComparedCell) -> Iterator[str]:
    """Yield what limits the comparison of a cell."""
    for side, values in zip("AB", cell, strict=True):
        for check in values.failed:
            yield f"no verdict, the check {check} failed in {side}"
        for check in values.warned:
            yield f"doubtful, the check {check} warns in {side}"
        if values.left_out:
            runs = counted(values.left_out, "run")
            yield f"{runs} in {side} not used, because the timed epoch was disturbed"
        if not values.runs:
            yield f"not compared, {_no_number(values)} in {side}"


def _no_number(cell: ReferenceCell) -> str:
    return "out of memory" if cell.outcome is Outcome.OOM else "no number"


def _failure(comparison: StudyComparison, limit: float) -> str:
    """Return why a comparison does not pass a limit; empty if it does.

    A cell passes if its 95 % interval is below the limit: its runs rule out that it is slower by
    more.
    """
    faults = by_key(
        (fault, f"{_words(group, cell)}{change}")
        for group in comparison.groups
        for cell in group.cells
        for fault, change in _faults(cell, limit)
    )
    return "; ".join(
        f"{fault}: {names(labels, separator='; ')}" for fault, labels in faults.items()
    )


def _faults(cell: ComparedCell, limit: float) -> Iterator[tuple[str, str]]:
    """Yield why a cell does not pass a limit, and its change."""
    if not cell.is_measured:
        if cell.old.runs:
            yield f"{_no_number(cell.new)} in B", ""
        return
    estimate, interval = cell.ratio
    if cell.decision is None:
        yield "a data-quality check failed, measure again", ""
    elif interval is None:
        yield (
            f"too few runs to tell, submit both studies again with repeats={LEAST_RUNS}",
            "",
        )
    elif interval.high > 1 + limit:
        is_slower = cell.decision is Decision.SLOWER and estimate > 1 + limit
        fault = "slower" if is_slower else "more repeats are needed to rule out slower"
        yield f"{fault} by more than {percent_text(limit)}", f": {_change(cell)}"
