"""Every data-quality check of a group's cells."""

from hpml_jobs.checks import Level
from hpml_jobs.checks.result import Tier
from hpml_jobs.core.text import counted
from hpml_jobs.report import warnings
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.table import Sheet, Table

OF_FIRST = "Figures are those of the first cell named; checks.csv has all."


def checks(group: ConditionGroup) -> Table:
    """Return the causes of wrong or doubtful numbers, and how many checks passed."""
    slugs = [slug for row in group.rows for slug in row.cells if slug in group.checks]
    results = [(slug, result) for slug in slugs for result in group.checks[slug]]
    passed = sum(result.level is Level.PASS for _, result in results)
    listed = sum(r.level is not Level.PASS and r.tier is Tier.LIST for _, r in results)
    notes = tuple(warnings.doubts(group))
    caption = f"{counted(passed, 'check')} passed in {counted(len(set(slugs)), 'cell')}"
    if listed:
        caption += f"; {counted(listed, 'warning')} without effect on a table: see checks.csv"
    return Table(
        label="checks",
        title="Data-quality checks",
        corner="",
        blocks=(),
        lines=(),
        caption=(
            f"{caption}." if results else "No cell has been checked.",
            *([OF_FIRST] if any(" and " in note for note in notes) else []),
        ),
        setting=captions.setting(group),
        notes=notes,
        sheet=Sheet(
            columns=("cell", "check", "level", "reason", "shown", "affects"),
            rows=tuple(
                (slug, r.check, r.level.value, r.reason, r.tier.value, " ".join(r.affects))
                for slug, r in results
            ),
        ),
    )
