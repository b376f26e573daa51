"""tables.json, the report for programs: unrounded numbers, units in names, null if missing."""

from typing import Any

import msgspec

from hpml_jobs.core.text import printable_bytes
from hpml_jobs.report.answer import Answer, answer_of
from hpml_jobs.report.frame.table import Table
from hpml_jobs.report.report import Report, ReportGroup
from hpml_jobs.report.warnings import Cause, causes
from hpml_jobs.results.cells import CellResult
from hpml_jobs.results.rows import Row, Series
from hpml_jobs.study.files import encode

SCHEMA = 5
"""Version of tables.json.

1: first. 2: measured values; every table with its unrounded sheet. 3: treatments, answers.
4: what only programs read is in `sheets`, no longer in `tables`. 5: `answer` has the sizes.
"""

METHOD = (
    "values: medians over runs of the timed and the instrumented epoch, seconds per epoch; "
    "residual: comm_s = train_s(N,b) - train_s(1,b) x ceil(D/N) / D, not measured; "
    "GB = 1e9 bytes"
)


OTHER_VALUES = ("measured_cells", "reference_row", "checks")
"""Fields of a row that are other values: the cells, a row, and the checks, which the CSV has."""


def document(report: Report) -> bytes:
    """Return the whole report as one JSON text in UTF-8."""
    content = {
        "schema": SCHEMA,
        "study": report.study,
        "method": METHOD,
        "unlike": report.differences,
        "groups": [_group(report, group) for group in report.groups],
        "tables": [_table(table) for table in report.tables],
        "in_no_table": [_absent(result) for result in report.unplaced],
    }
    return printable_bytes(encode(content))


def _group(report: Report, group: ReportGroup) -> dict[str, Any]:
    return {
        "group": group.number,
        "title": group.name,
        "apart": group.differences,
        "answer": _answer(answer_of(report, group), group.source.series),
        "warnings": [_cause(cause) for cause in causes(group.source)],
        "conditions": group.source.conditions,
        "baseline": [_row(row) for row in group.source.rows if row.is_baseline],
        "entries": [_row(row) for row in group.source.rows if not row.is_baseline],
        "missing_cells": [
            _absent(result) for result in group.source.cells if not result.measured
        ],
        "tables": [_table(table) for table in group.tables],
        "sheets": group.sheets,
    }


def _answer(answer: Answer, series: Series | None) -> dict[str, Any]:
    """Return the sentences, and the sizes with the ends of their speedup's interval."""
    sizes = [
        {
            "gpus": size.parallel.gpus,
            "nodes": size.parallel.nodes,
            "batch": size.parallel.batch_per_gpu,
            "runs": len(size.parallel.runs),
            "speedup": size.speedup,
            "low": size.interval and size.interval.low,
            "high": size.interval and size.interval.high,
            "efficiency": size.efficiency,
        }
        for size in (series.sizes if series else ())
    ]
    return {
        "sentence": answer.sentence,
        "lines": answer.lines,
        "marks": answer.marks,
        "sizes": sizes,
    }


def _cause(cause: Cause) -> dict[str, Any]:
    """Return a cause of wrong, doubtful or limited numbers, with all its cells."""
    result = msgspec.structs.asdict(cause.result)
    return {**result, "cells": cause.slugs}


def _row(row: Row) -> dict[str, Any]:
    fields = msgspec.structs.asdict(row)
    fields["reference"] = row.reference and row.reference._asdict()
    return {name: value for name, value in fields.items() if name not in OTHER_VALUES}


def _table(table: Table) -> dict[str, Any]:
    return {
        "label": table.label,
        "title": table.title,
        "caption": table.caption,
        "setting": table.setting,
        "notes": table.notes,
        "sheet": table.sheet,
    }


def _absent(result: CellResult) -> dict[str, str]:
    return {
        "cell": result.slug,
        "outcome": result.outcome.value,
        "reason": result.reason,
    }
