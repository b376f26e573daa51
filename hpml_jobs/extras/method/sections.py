"""The section of a page on the hardware and the software of a group."""

from hpml_jobs.extras.method.facts import environment
from hpml_jobs.report.page.formats import FactTable, Item
from hpml_jobs.report.report import ReportGroup


def hardware(group: ReportGroup) -> tuple[str, tuple[Item, ...], str]:
    """Return the section of a group's hardware and software; without facts it has no items."""
    rows = tuple((fact.name, fact.text) for fact in environment(group.source))
    title = "Hardware and software"
    items = (FactTable(title, ("property", "value"), rows),) if rows else ()
    return "Environment", items, title
