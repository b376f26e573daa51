"""Every data-quality check of a group's cells."""

from collections.abc import Iterable

from hpml_jobs.checks import Level
from hpml_jobs.core.text import counted
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.rows import Row
from hpml_jobs.report.table import Sheet, Table
from hpml_jobs.report.text import captions
from hpml_jobs.report.text.captions import full_label
from hpml_jobs.report.text.marks import FEW, by_check
from hpml_jobs.report.text.notes import places_text


def checks(group: ConditionGroup) -> Table:
    """Return every check that did not pass, with its reason, and how many did."""
    slugs = [slug for row in group.rows for slug in row.cells if slug in group.checks]
    results = [(slug, result) for slug in slugs for result in group.checks[slug]]
    passed = sum(result.level is Level.PASS for _, result in results)
    return Table(
        label="checks",
        title="Data-quality checks",
        corner="",
        blocks=(),
        lines=(),
        caption=(
            f"{counted(passed, 'check')} passed in {counted(len(set(slugs)), 'cell')}."
            if results
            else "No cell has been checked.",
        ),
        setting=captions.setting(group),
        notes=(*_notes(group, Level.FAIL), *_notes(group, Level.WARN)),
        sheet=Sheet(
            columns=("cell", "check", "level", "reason"),
            rows=tuple((slug, r.check, r.level.value, r.reason) for slug, r in results),
        ),
    )


def _notes(group: ConditionGroup, level: Level) -> list[str]:
    """Return a line per check and reason; a check that many cells did not pass has one line."""
    lines = []
    for check, reasons in by_check(group, group.rows, level).items():
        head = f"{level.value}: {check}"
        if len(reasons) <= FEW[level]:
            lines += [
                f"{head}: {_where(group, rows_of_reason)}: {why}"
                for why, rows_of_reason in reasons.items()
            ]
        else:
            rows_of_reason = [row for rows in reasons.values() for row in rows]
            lines.append(
                f"{head}: {counted(len(rows_of_reason), 'cell')}: {_where(group, rows_of_reason)}; "
                f"first reason: {next(iter(reasons))}; all reasons are in checks.csv"
            )
    return lines


def _where(group: ConditionGroup, rows: Iterable[Row]) -> str:
    """Return places in words, and the number of runs there if only some of them are meant."""
    listed = list(rows)
    places = places_text(
        dict.fromkeys(row.place for row in listed), lambda setup: full_label(setup, group.device)
    )
    runs = sum(len(row.cells) for row in dict.fromkeys(listed))
    return places if len(listed) == runs else f"{places} ({len(listed)} of {runs} runs)"
