"""The report for other programs, tables.json: unrounded, units in the names, null for no number."""

from typing import Any

from hpml_jobs.report.merge.cells import CellResult
from hpml_jobs.report.report import Report, ReportGroup
from hpml_jobs.report.table import Table
from hpml_jobs.study.files import encode

SCHEMA = 3
"""Version of tables.json.

1: first. 2: measured values; every table with its unrounded sheet. 3: treatments, answers.
"""

METHOD = (
    "values: medians over runs of E1 and E2, seconds per epoch; "
    "residual: comm_s = train_s(N,b) - I_N x train_s(1,b) / I_1, not measured; GB = 1e9 bytes"
)


def document(report: Report) -> str:
    """The whole report as one file."""
    content = {
        "schema": SCHEMA,
        "study": report.study,
        "method": METHOD,
        "unlike": report.differences,
        "groups": [_group(group) for group in report.groups],
        "tables": [_table(table) for table in report.tables],
        "in_no_table": [_absent(found) for found in report.unplaced],
    }
    return encode(content).decode()


def _group(group: ReportGroup) -> dict[str, Any]:
    return {
        "group": group.number,
        "title": group.title,
        "apart": group.differences,
        "conditions": group.source.conditions,
        "baseline": [row for row in group.source.rows if row.is_baseline],
        "entries": [row for row in group.source.rows if not row.is_baseline],
        "missing_cells": [_absent(found) for found in group.source.cells if not found.measured],
        "tables": [_table(table) for table in group.tables],
    }


def _table(table: Table) -> dict[str, Any]:
    told = ("label", "title", "answer", "caption", "setting", "notes", "sheet")
    return {name: getattr(table, name) for name in told}


def _absent(found: CellResult) -> dict[str, str]:
    return {"cell": found.slug, "outcome": found.outcome.value, "reason": found.reason}
