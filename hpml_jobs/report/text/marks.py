"""Verdicts in the report: the mark beside a number, the notes under a table, a list of them all."""

from collections.abc import Callable, Iterable

from hpml_jobs.checks import Level
from hpml_jobs.core.text import counted
from hpml_jobs.report.merge.entries import Entry, Place, Row
from hpml_jobs.report.merge.scope import Scope
from hpml_jobs.report.table import Sheet, Table
from hpml_jobs.report.text.captions import full_label, row_label
from hpml_jobs.report.text.notes import places_text

MARK = "!"
"""Stands before a number of a cell that fails a check."""

_FEW = {Level.FAIL: 12, Level.WARN: 3}
"""So many reasons of one check are told one by one; where there are more, the first of them."""


def failures(scope: Scope, entries: Iterable[Entry]) -> list[str]:
    """Why numbers are marked: each failed check with its reason; many of one kind in one line."""
    label = _label(scope)
    lines = []
    for check, reasons in _by_check(scope, entries, Level.FAIL).items():
        if len(reasons) <= _FEW[Level.WARN]:
            for reason, own in reasons.items():
                lines.append(f"{MARK} {places_text(map(_place, own), label)}: {check}: {reason}")
        else:
            own = [entry for entries in reasons.values() for entry in entries]
            first = next(iter(reasons))
            places = places_text(map(_place, own), label)
            lines.append(f"{MARK} {check}: {places}; the first: {first}; the rest under Verdicts")
    return lines


def _by_check(
    scope: Scope, entries: Iterable[Entry], level: Level
) -> dict[str, dict[str, list[Entry]]]:
    """Check -> reason -> the entries (one for each run) it holds for."""
    found: dict[str, dict[str, list[Entry]]] = {}
    for entry in entries:
        for _, result in scope.verdicts_of(entry, level):
            found.setdefault(result.check, {}).setdefault(result.reason, []).append(entry)
    return found


def doubts(scope: Scope, entries: Iterable[Entry]) -> list[str]:
    """One line that names the checks which ended with a warning, and where."""
    label = _label(scope)
    where: dict[str, list[str]] = {}
    for check, reasons in _by_check(scope, entries, Level.WARN).items():
        places = places_text((_place(entry) for own in reasons.values() for entry in own), label)
        where.setdefault(places, []).append(check)
    told = (f"{', '.join(checks)} ({places})" for places, checks in where.items())
    return [f"doubtful, see Verdicts: {'; '.join(told)}"] if where else []


def marked(scope: Scope, entry: Entry, texts: tuple[str, ...]) -> tuple[str, ...]:
    """An entry's numbers, the first with the mark if one of its runs fails a check."""
    return (f"{MARK}{texts[0]}", *texts[1:]) if scope.failed(entry) else texts


def _place(entry: Entry) -> Place:
    return entry.row, entry.batch_per_gpu


def _label(scope: Scope) -> Callable[[Row], str]:
    return lambda row: row_label(row, scope.device)


def checks(scope: Scope) -> Table:
    """Every check that did not pass, with its reason, and how many did."""
    rows = [
        (slug, result.check, result.level.value, result.reason)
        for entry in scope.entries
        for slug in entry.cells
        for result in scope.checks.get(slug, ())
    ]
    passed = [row for row in rows if row[2] == Level.PASS.value]
    judged = len({row[0] for row in rows})
    return Table(
        label="checks",
        title="Verdicts",
        corner="",
        blocks=(),
        lines=(),
        caption=(
            f"{counted(len(passed), 'check')} passed in {counted(judged, 'cell')}."
            if rows
            else "No cell has been judged.",
        ),
        setting=scope.setting,
        notes=(*_told(scope, Level.FAIL), *_told(scope, Level.WARN)),
        sheet=Sheet(columns=("cell", "check", "level", "reason"), rows=tuple(rows)),
    )


def _told(scope: Scope, level: Level) -> list[str]:
    """A line per check and reason; a check that many cells did not pass has one line in all."""
    lines = []
    for check, reasons in _by_check(scope, scope.entries, level).items():
        head = f"{level.value}: {check}"
        if len(reasons) <= _FEW[level]:
            lines += [f"{head}: {_where(scope, own)}: {why}" for why, own in reasons.items()]
        else:
            own = [entry for entries in reasons.values() for entry in entries]
            lines.append(
                f"{head}: {counted(len(own), 'cell')}: {_where(scope, own)}; the first: "
                f"{next(iter(reasons))}; each with its reason in checks.csv"
            )
    return lines


def _where(scope: Scope, entries: Iterable[Entry]) -> str:
    """Places in words, and how many of the runs there where not all of them are meant."""
    found = list(entries)
    told = places_text(dict.fromkeys(map(_place, found)), lambda row: full_label(row, scope.device))
    runs = sum(len(entry.cells) for entry in dict.fromkeys(found))
    return told if len(found) == runs else f"{told} ({len(found)} of {runs} runs)"
