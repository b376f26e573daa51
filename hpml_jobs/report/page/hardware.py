"""The section of a page on the hardware and the software of a group."""

from hpml_jobs.report.page.facts import environment
from hpml_jobs.report.page.formats import FactTable, Item
from hpml_jobs.report.report import ReportGroup


def hardware(group: ReportGroup) -> tuple[str, tuple[Item, ...], str]:
    """Return the section of a group's hardware and software; without facts it has no items."""
    title = "Hardware and software"
    rows = tuple((fact.name, fact.text) for fact in environment(group.source))
    if not rows:
        return "Environment", (), title
    table = FactTable(title, ("property", "value"), rows)
    return "Environment", (table,), title
