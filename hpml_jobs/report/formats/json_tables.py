"""tables.json, the report for programs: unrounded numbers, units in names, null if missing."""

from typing import Any

import msgspec

from hpml_jobs.report.merge.causes import Cause, causes
from hpml_jobs.report.merge.cells import CellResult
from hpml_jobs.report.merge.rows import Row
from hpml_jobs.report.merge.run_values import RunValues
from hpml_jobs.report.report import Report, ReportGroup
from hpml_jobs.report.table import Table
from hpml_jobs.study.files import encode

SCHEMA = 3
"""Version of tables.json.

1: first. 2: measured values; every table with its unrounded sheet. 3: treatments, answers.
"""

METHOD = (
    "values: medians over runs of E1 and E2, seconds per epoch; "
    "residual: comm_s = train_s(N,b) - train_s(1,b) x ceil(D/N) / D, not measured; "
    "GB = 1e9 bytes"
)


def document(report: Report) -> str:
    """Return the whole report as one JSON text."""
    content = {
        "schema": SCHEMA,
        "study": report.study,
        "method": METHOD,
        "unlike": report.differences,
        "groups": [_group(group) for group in report.groups],
        "tables": [_table(table) for table in report.tables],
        "in_no_table": [_absent(result) for result in report.unplaced],
    }
    return encode(content).decode()


def _group(group: ReportGroup) -> dict[str, Any]:
    return {
        "group": group.number,
        "title": group.title,
        "apart": group.differences,
        "usability": group.usability,
        "suggestion": group.suggestion,
        "ratios_against": group.source.baseline,
        "warnings": [_cause(cause) for cause in causes(group.source)],
        "conditions": group.source.conditions,
        "baseline": [_row(row) for row in group.source.rows if row.is_baseline],
        "entries": [_row(row) for row in group.source.rows if not row.is_baseline],
        "missing_cells": [_absent(result) for result in group.source.cells if not result.measured],
        "tables": [_table(table) for table in group.tables],
    }


def _cause(cause: Cause) -> dict[str, Any]:
    """Return a cause of wrong, doubtful or limited numbers, with all its cells."""
    result = msgspec.structs.asdict(cause.result)
    return {**result, "cells": cause.slugs}


def _row(row: Row) -> dict[str, Any]:
    return {
        **msgspec.structs.asdict(row),
        "reference": row.reference._asdict() if row.reference else None,
        "values": _values(row.values) if row.values else None,
        "runs": [_values(run) for run in row.runs],
    }


def _values(values: RunValues) -> dict[str, float | None]:
    """Return the values of a run under the names that the file has had since schema 2."""
    epoch, communication, gradients = values.epoch, values.communication, values.gradients
    links, phases = values.links, values.phases
    return {
        "epoch_s": epoch.epoch_s,
        "train_s": epoch.train_s,
        "stall_s": epoch.stall_s,
        "compute_s": values.compute_s,
        "step_s": epoch.step_s,
        "joules": epoch.joules,
        "comm_s": communication.comm_s,
        "comm_exposed_s": communication.exposed_s,
        "exchange_s": communication.exchange_s,
        "waiting_s": communication.waiting_s,
        "comm_total_s": communication.total_s,
        "comm_forward_s": communication.forward_s,
        "comm_cost_s": communication.cost_s,
        "comm_cost_resolution_s": communication.cost_resolution_s,
        "skew_s": communication.skew_s,
        "net_s": communication.net_s,
        "rooted_s": communication.rooted_s,
        "gradients_s": gradients.active_s,
        "gradients_net_s": gradients.net_s,
        "gradients_root_s": gradients.root_s,
        "gradients_sent_bytes": gradients.sent_bytes,
        "probe_same_sizes_s": links.same_sizes_s,
        "peak_gb_per_s": links.peak_gb_per_s,
        "peak_bytes": links.peak_bytes,
        "link_gb_per_s": links.link_gb_per_s,
        "phase_stall_s": phases.stall_s,
        "phase_h2d_s": phases.h2d_s,
        "phase_forward_s": phases.forward_s,
        "phase_backward_s": phases.backward_s,
        "phase_comm_exposed_s": phases.comm_exposed_s,
        "phase_optimizer_s": phases.optimizer_s,
        "pack_s": phases.pack_s,
        "closure": phases.closure,
        "overhead": phases.overhead,
    }


def _table(table: Table) -> dict[str, Any]:
    return {
        "label": table.label,
        "title": table.title,
        "answer": table.answer,
        "caption": table.caption,
        "setting": table.setting,
        "notes": table.notes,
        "sheet": table.sheet,
    }


def _absent(result: CellResult) -> dict[str, str]:
    return {"cell": result.slug, "outcome": result.outcome.value, "reason": result.reason}
