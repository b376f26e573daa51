"""CSV files for pandas and spreadsheets: a file per table, cells.csv with every cell.

Numbers are unrounded. A missing number is empty; cells.csv has the reason.
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, compress
from math import isnan
from types import NoneType
from typing import Any

import msgspec

from hpml_jobs.core import formulas
from hpml_jobs.core.cell import Cell
from hpml_jobs.core.check_result import CheckResult, worst_level
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.record import Record
from hpml_jobs.report.frame.captions import row_label
from hpml_jobs.report.frame.table import Sheet
from hpml_jobs.report.lab.selection import LabLine
from hpml_jobs.report.report import Report
from hpml_jobs.results.cells import CellResult
from hpml_jobs.results.figures import figures_of
from hpml_jobs.results.gpus import gpu_figures
from hpml_jobs.results.rows import Row

CELLS = "cells"
"""The sheet of all cells."""

_PLACE = ["group", "strategy", "row", "gpus", "nodes", "treatment"]
_SHEETS = {
    "table1": (1, ["time_s", "speedup", "time_doubtful", "speedup_doubtful"]),
    "table2": (
        2,
        [
            "compute_s",
            "comm_s",
            "comm_exposed_s",
            "compute_residual_s",
            "comm_residual_s",
        ],
    ),
    "table3": (2, ["gb_per_s", "of_peak", "bus_residual_gb_per_s"]),
}
"""The sheet of each table: the least number of GPUs of a row, and the quantities at each batch."""

_Q1_SHEET = "q1"

ALWAYS = (_Q1_SHEET, *_SHEETS, CELLS)
"""The sheets that every report has."""


def tables(report: Report) -> dict[str, Sheet]:
    """Return the sheets by label: Tables 1 to 3 in the lab's layout, the others by row; `cells`."""
    places = _places(report)
    sheet_of = {_Q1_SHEET: _sheet(list(_q1(report)), _Q1)}
    for label, (least, quantities) in _SHEETS.items():
        large = [place for place in places if place["gpus"] >= least]
        sheet_of[label] = _wide(large, quantities)
    sheet_of |= _full(report)
    sheet_of[CELLS] = _sheet(list(_cells(report)))
    return sheet_of


def sheets(report: Report) -> dict[str, str]:
    """Return the CSV files by name, one per sheet.

    cells.csv is without the columns that are empty.
    """
    sheet_of = tables(report)
    sheet_of[CELLS] = _without_empty_columns(sheet_of[CELLS])
    return {f"{label}.csv": _text(sheet) for label, sheet in sheet_of.items()}


def _sheet(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> Sheet:
    """Return rows as a sheet: with these columns, and all others of the rows."""
    names = tuple(dict.fromkeys(chain(columns, *rows)))
    return Sheet(columns=names, rows=tuple(tuple(map(row.get, names)) for row in rows))


def _without_empty_columns(sheet: Sheet) -> Sheet:
    columns = zip(*sheet.rows, strict=True)
    has_values = [any(value is not None for value in values) for values in columns]
    return Sheet(
        columns=tuple(compress(sheet.columns, has_values)),
        rows=tuple(tuple(compress(row, has_values)) for row in sheet.rows),
    )


def _text(sheet: Sheet) -> str:
    """Return a sheet as CSV."""
    columns = [_as_written(values) for values in zip(*sheet.rows, strict=True)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(sheet.columns)
    writer.writerows(zip(*columns, strict=True))
    return text.getvalue()


def _as_written(values: Sequence[Any]) -> list[Any]:
    """Return the values of a column; whole numbers beside others, or missing ones, have .0."""
    types = {*map(type, values)}
    if types != {int} and types <= {int, float, NoneType}:
        return [
            None if value is None or isnan(value) else float(value) for value in values
        ]
    first_characters = {value[:1] for value in {*values} if isinstance(value, str)}
    if first_characters.isdisjoint(FORMULA):
        return list(values)
    return [no_formula(value) for value in values]


FORMULA = ("=", "+", "-", "@")
"""The first characters of a text that a spreadsheet would compute."""


def no_formula(value: Any) -> Any:
    """Return a value of a sheet; a text that a spreadsheet would compute begins with '."""
    is_formula = isinstance(value, str) and value.startswith(FORMULA)
    return f"'{value}" if is_formula else value


def _wide(places: Sequence[Mapping[str, Any]], quantities: Sequence[str]) -> Sheet:
    """Return a row per row of the table, with columns such as `batch_32_time_s`, batch by batch."""
    batches = sorted({place["batch"] for place in places})
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for place in places:
        row = rows.setdefault(tuple(place[name] for name in _PLACE), {})
        for quantity in quantities:
            row[f"batch_{place['batch']}_{quantity}"] = place[quantity]
    columns = [
        f"batch_{batch}_{quantity}" for batch in batches for quantity in quantities
    ]
    return Sheet(
        columns=(*_PLACE, *columns),
        rows=tuple((*place, *map(row.get, columns)) for place, row in rows.items()),
    )


def _full(report: Report) -> dict[str, Sheet]:
    """Return full tables and sheets by label; those of all groups share one sheet."""
    of_groups: dict[str, dict[int, Sheet]] = {}
    for group in report.groups:
        of_group = {table.label: table.sheet for table in group.full if table.sheet}
        of_group.update(group.sheets)
        for label, sheet in of_group.items():
            of_groups.setdefault(label, {})[group.number] = sheet
    joined = {label: _joined(by_group) for label, by_group in of_groups.items()}
    for table in report.tables:
        if table.sheet is not None:
            joined[table.label] = table.sheet
    return joined


def _joined(sheets: Mapping[int, Sheet]) -> Sheet:
    """Return the sheets of groups, by their number, as one.

    Groups may differ in columns: only groups with text have bits per byte.
    """
    filled = {number: sheet for number, sheet in sheets.items() if sheet.rows}
    columns = [sheet.columns for sheet in filled.values()]
    names = dict.fromkeys(chain.from_iterable(columns))
    rows: list[tuple[Any, ...]] = []
    for number, sheet in filled.items():
        for row in sheet.rows:
            by_name = dict(zip(sheet.columns, row, strict=True))
            rows.append((number, *map(by_name.get, names)))
    return Sheet(columns=("group", *names) if rows else (), rows=tuple(rows))


_Q1 = ("group", "batch", "treatment", "train_s", "epoch_s", "iterations")
"""The columns of the sheet of single-GPU times, also where there are none."""


def _q1(report: Report) -> Iterator[dict[str, object]]:
    of_groups = [(group, row) for group in report.groups for row in group.source.rows]
    for group, row in of_groups:
        if row.is_baseline:
            place = (group.number, row.batch_per_gpu, row.treatment)
            line: dict[str, object] = dict(zip(_Q1, place, strict=False))
            if row.timing:
                line |= {name: getattr(row.timing, name) for name in _Q1[3:]}
            yield line


def _places(report: Report) -> list[dict[str, Any]]:
    return [
        {
            "group": group.number,
            "row": row_label(row.setup, group.source.device),
            "gpus": row.gpus,
            "nodes": row.nodes,
            "treatment": row.treatment,
            "strategy": strategy.strategy.value,  # the baseline's row is in every strategy's table
            "batch": row.batch_per_gpu,
            **LabLine.of(group.source, row)._asdict(),
        }
        for group in report.groups
        for strategy in group.strategies
        for row in strategy.rows
    ]


def _cells(report: Report) -> Iterator[dict[str, Any]]:
    """Return every cell of each group, then the cells that are in no table."""
    for group in report.groups:
        source = group.source
        rows = {slug: row for row in source.rows for slug in row.cells}
        for result in source.cells:
            cell = _row(result, rows[result.slug], source.checks)
            yield {"group": group.number, **cell}
    yield from (_row(result) for result in report.unplaced)


def _row(
    result: CellResult,
    row: Row | None = None,
    checks: Mapping[str, Sequence[CheckResult]] = {},
) -> dict[str, Any]:
    """Return a cell's outcome, its measured values, its requested settings and all its facts.

    `speedup` and `efficiency` are those of its `row`, of medians over runs. `left_out` says which
    of its epochs these medians do not contain: `all`, or `instrumented`, `unsynced` or both.
    `checks` is the worst level of its data-quality checks.
    """
    record = result.record
    values: dict[str, Any] = {"slug": result.slug}
    values |= _place(result.cell)
    values |= {
        "outcome": result.outcome.value,
        "reason": result.reason,
        "warning": result.warning,
    }
    values["left_out"] = _left_out(result.slug, row)
    if record is not None and row is not None and result.measured:
        values |= {"work_samples": record.work_samples}
        values |= msgspec.structs.asdict(figures_of(record))
        values |= dict(zip(MEASURED, _measured(record, row), strict=True))
        values |= gpu_figures(record)._asdict()
        values["checks"] = worst_level(checks.get(result.slug, ())).value
    values |= flat(result.cell)
    if result.cell is not None:
        values["workload_code"] = " ".join(
            f"{file.name}:{file.sha256[:12]}" for file in result.cell.workload.sources
        )
    if record is not None:
        values |= flat(record.model, "model_")
        values |= flat(record.attempt, "attempt_")
        values |= flat(record.facts, "facts_")
        values |= flat(record.imported, "imported_")
    return values


MEASURED = (
    *("samples_per_s", "units_per_s", "unit", "speedup", "efficiency"),
    *("train_loss", "train_accuracy"),
    *("test_accuracy_rank0", "iterations", "samples", "loader_workers_total"),
)
"""Columns of measured cells beside their figures."""


def _measured(record: Record, row: Row) -> tuple[float | str | None, ...]:
    samples = record.samples
    units = record.units
    return (
        formulas.units_per_s(samples, record.epoch_s) if samples else None,
        formulas.units_per_s(units, record.epoch_s) if units else None,
        record.cell.workload.throughput_unit.value,
        row.speedup,
        row.scaling.efficiency if row.scaling else None,
        record.loss,
        record.accuracy,
        record.ranks[0].test_accuracy if record.ranks else None,
        record.iterations,
        record.samples,
        sum(rank.loader_workers for rank in record.ranks),
    )


def _left_out(slug: str, row: Row | None) -> str:
    """Return the epochs of a cell that its row's medians do not contain."""
    runs = [run for run in row.left_out if run.slug == slug] if row else []
    return " ".join("all" if run.role is Role.TIMED else run.role.value for run in runs)


_CELL_COLUMNS = ("strategy", "gpus", "nodes", "batch", "treatment", "seed", "repeat")


def _place(cell: Cell | None) -> dict[str, int | str | None]:
    if cell is None:
        return dict.fromkeys(_CELL_COLUMNS)
    place = {name: getattr(cell, name) for name in _CELL_COLUMNS}
    return place | {"strategy": cell.strategy.value}


def flat(value: msgspec.Struct | None, prefix: str = "") -> dict[str, Any]:
    """Return a value's fields as columns: nested names are joined, a list becomes one text."""
    columns: dict[str, Any] = {}
    for name, field in (msgspec.to_builtins(value) or {}).items():
        if isinstance(field, dict):
            for key, inner in field.items():
                columns[f"{prefix}{name}_{key}"] = _in_one(inner)
        else:
            columns[f"{prefix}{name}"] = _in_one(field)
    return columns


def _in_one(field: Any) -> Any:
    if isinstance(field, dict):
        return " ".join(f"{name}={value}" for name, value in field.items())
    return " ".join(map(str, field)) if isinstance(field, (list, tuple)) else field
