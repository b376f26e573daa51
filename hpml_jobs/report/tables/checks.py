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
    """Every check that did not pass, with its reason, and how many did."""
    rows = [
        (slug, result.check, result.level.value, result.reason)
        for row in group.rows
        for slug in row.cells
        for result in group.checks.get(slug, ())
    ]
    passed = [row for row in rows if row[2] == Level.PASS.value]
    judged = len({row[0] for row in rows})
    return Table(
        label="checks",
        title="Data-quality checks",
        corner="",
        blocks=(),
        lines=(),
        caption=(
            f"{counted(len(passed), 'check')} passed in {counted(judged, 'cell')}."
            if rows
            else "No cell has been checked.",
        ),
        setting=captions.setting(group),
        notes=(*_told(group, Level.FAIL), *_told(group, Level.WARN)),
        sheet=Sheet(columns=("cell", "check", "level", "reason"), rows=tuple(rows)),
    )


def _told(group: ConditionGroup, level: Level) -> list[str]:
    """A line per check and reason; a check that many cells did not pass has one line in all."""
    lines = []
    for check, reasons in by_check(group, group.rows, level).items():
        head = f"{level.value}: {check}"
        if len(reasons) <= FEW[level]:
            lines += [f"{head}: {_where(group, own)}: {why}" for why, own in reasons.items()]
        else:
            own = [row for rows in reasons.values() for row in rows]
            lines.append(
                f"{head}: {counted(len(own), 'cell')}: {_where(group, own)}; first reason: "
                f"{next(iter(reasons))}; all reasons are in checks.csv"
            )
    return lines


def _where(group: ConditionGroup, rows: Iterable[Row]) -> str:
    """Places in words, and how many of the runs there where not all of them are meant."""
    found = list(rows)
    told = places_text(
        dict.fromkeys(row.place for row in found), lambda setup: full_label(setup, group.device)
    )
    runs = sum(len(row.cells) for row in dict.fromkeys(found))
    return told if len(found) == runs else f"{told} ({len(found)} of {runs} runs)"
