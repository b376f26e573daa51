"""The tables of a report as pandas DataFrames, for programs and for files of CSV.

Numbers are unrounded, units are in the names. A missing number is NaN, empty in CSV; the frame of
cells has the reason.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import ceil
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from hpml_jobs.core import formulas
from hpml_jobs.core.cell import Cell
from hpml_jobs.core.check_result import CheckResult, worst_level
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.record import Record
from hpml_jobs.report.frame.captions import row_label
from hpml_jobs.report.frame.table import Sheet, Table
from hpml_jobs.report.lab.selection import LabLine
from hpml_jobs.report.report import LABELS, Report, ReportOptions, make_report
from hpml_jobs.results.cells import CellResult
from hpml_jobs.results.figures import figures_of
from hpml_jobs.results.gpus import gpu_figures
from hpml_jobs.results.iterations import Curve, NoArraysError, has_curve, read_curve
from hpml_jobs.results.rows import Row
from hpml_jobs.study.snapshot import read_snapshots
from hpml_jobs.study.study import Study

CELLS = "cells"
"""The frame of all cells."""

_PLACE = ["group", "strategy", "row", "gpus", "nodes", "treatment"]

_Q1 = ["group", "batch", "treatment", "train_s", "epoch_s", "iterations"]
"""The columns of single-GPU times, also where there are none."""

_OF_TABLES = {
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
"""Of each of Tables 1 to 3 the least GPUs of a row, and the quantities at each batch."""


def tables(folder: str | Path) -> dict[str, pd.DataFrame]:
    """Return the frames of a study by label; SLURM is not asked.

    Raises:
        HpmlError: the folder has no study, or one of a newer version.
    """
    study = Study(Path(folder).expanduser().resolve())
    if not study.cells_folder.is_dir():
        raise HpmlError(f"{folder} is no study: name its folder, e.g. outputs/demo")
    study.check_schema()
    options = ReportOptions(study.last_cluster(), study.commands())
    return frames(make_report(study.name, read_snapshots(study.cells()), (), options))


def frames(report: Report) -> dict[str, pd.DataFrame]:
    """Return the frames by label: Tables 1 to 3 in the lab's layout, the others by row; `cells`.

    The attributes of a frame (`attrs`) are title, caption and notes of its tables.
    """
    places = _places(report)
    frame_of = {"q1": pd.DataFrame(_q1(report), columns=_Q1)}
    for label, (least, quantities) in _OF_TABLES.items():
        large = [place for place in places if place["gpus"] >= least]
        frame_of[label] = _wide(large, quantities)
    frame_of |= {label: _frame(rows) for label, rows in _full(report).items()}
    frame_of[CELLS] = _frame(_cells(report)).dropna(axis="columns", how="all")
    tables = [*report.tables, *chain.from_iterable(g.tables for g in report.groups)]
    for label, frame in frame_of.items():
        of_label = [table for table in tables if table.label.split("-")[0] == label]
        frame.attrs = _words(of_label)
    return frame_of


def _words(tables: Sequence[Table]) -> dict[Hashable | None, Any]:
    """Return the words of tables, each line once."""
    lines = {
        "title": [table.title for table in tables],
        "caption": [line for table in tables for line in table.caption],
        "notes": [note for table in tables for note in table.notes],
    }
    return {name: list(dict.fromkeys(texts)) for name, texts in lines.items()}


def _frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows as a frame with the columns of all of them."""
    listed = list(rows)
    return pd.DataFrame(listed, columns=list(dict.fromkeys(chain(*listed))))


def csv_files(report: Report, *, has_all: bool) -> dict[str, str]:
    """Return the CSV files by name, one per frame; those of full tables only if it has all."""
    return {
        f"{label}.csv": frame.map(no_formula).to_csv(index=False)
        for label, frame in frames(report).items()
        if has_all or label not in LABELS
    }


FORMULA = ("=", "+", "-", "@")
"""The first characters of a text that a spreadsheet would compute."""


def no_formula(value: Any) -> Any:
    """Return a value of a sheet; a text that a spreadsheet would compute begins with '."""
    is_formula = isinstance(value, str) and value.startswith(FORMULA)
    return f"'{value}" if is_formula else value


def _wide(
    places: Sequence[Mapping[str, Any]], quantities: Sequence[str]
) -> pd.DataFrame:
    """Return a row per row of the table, with columns such as `batch_32_time_s`, batch by batch."""
    batches = sorted({place["batch"] for place in places})
    columns = [
        f"batch_{batch}_{quantity}" for batch in batches for quantity in quantities
    ]
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for place in places:
        of_row = {name: place[name] for name in _PLACE}
        row = rows.setdefault(tuple(of_row.values()), of_row)
        for quantity in quantities:
            row[f"batch_{place['batch']}_{quantity}"] = place[quantity]
    return pd.DataFrame(list(rows.values()), columns=[*_PLACE, *columns])


def _full(report: Report) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of full tables and sheets by label; those of all groups are together.

    Groups may differ in columns: only groups with text have bits per byte.
    """
    rows: dict[str, list[dict[str, Any]]] = {}
    for group in report.groups:
        of_group = {table.label: table.sheet for table in group.full if table.sheet}
        of_group.update(group.sheets)
        for label, sheet in of_group.items():
            number = {"group": group.number}
            rows.setdefault(label, []).extend(number | row for row in _rows(sheet))
    for table in report.tables:
        if table.sheet is not None:
            rows[table.label] = list(_rows(table.sheet))
    return rows


def _rows(sheet: Sheet) -> Iterator[dict[str, Any]]:
    yield from (dict(zip(sheet.columns, row, strict=True)) for row in sheet.rows)


def _q1(report: Report) -> Iterator[list[Any]]:
    of_groups = [(group, row) for group in report.groups for row in group.source.rows]
    for group, row in of_groups:
        if row.is_baseline:
            place = [group.number, row.batch_per_gpu, row.treatment]
            times = [getattr(row.timing, name, None) for name in _Q1[len(place) :]]
            yield place + times


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
            **LabLine.of(row)._asdict(),
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
            cell = _cell(result, rows[result.slug], source.checks)
            yield {"group": group.number, **cell}
    yield from (_cell(result) for result in report.unplaced)


def _cell(
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
        values["work_samples"] = record.work_samples
        values |= msgspec.structs.asdict(figures_of(record, row.rank))
        values |= _measured(record, row)
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


def _measured(record: Record, row: Row) -> dict[str, Any]:
    """Return what a measured cell has beside its figures."""
    samples = record.samples
    units = record.units
    epoch_s = record.epoch_s
    return {
        "samples_per_s": formulas.units_per_s(samples, epoch_s) if samples else None,
        "units_per_s": formulas.units_per_s(units, epoch_s) if units else None,
        "unit": record.cell.workload.throughput_unit.value,
        "speedup": row.speedup,
        "efficiency": row.scaling.efficiency if row.scaling else None,
        "train_loss": record.loss,
        "train_accuracy": record.accuracy,
        "test_accuracy_rank0": record.ranks[0].test_accuracy if record.ranks else None,
        "iterations": record.iterations,
        "samples": samples,
        "loader_workers_total": sum(rank.loader_workers for rank in record.ranks),
    }


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


ROWS = 200_000
"""The approximate maximum of rows; `every` is k if each k-th iteration is listed."""

_HEAD = (
    "group",
    "strategy",
    "treatment",
    "gpus",
    "nodes",
    "batch",
    "seed",
    "repeat",
    "epoch",
    "role",
    "iteration",
    "loss",
    "step_s",
    "lr",
    "every",
)


def curves_csv(report: Report, max_rows: int = ROWS) -> str | None:
    """Return curves.csv of all runs with curves, 7 digits per value; None if no run has any."""
    runs = [
        (group.number, result)
        for group in report.groups
        for result in group.source.cells
        if has_curve(result)
    ]
    iterations = sum(_iterations(result) for _, result in runs)
    step = max(1, ceil(iterations / max_rows))
    rows: list[object] = []
    for group, result in runs:
        try:
            curve = read_curve(result)
        except NoArraysError:  # the table of replicas has it in its notes
            continue
        if result.cell is not None:
            rows += [(group, *row, step) for row in _of_curve(result.cell, curve, step)]
    return pd.DataFrame(rows, columns=_HEAD).to_csv(index=False) if rows else None


def _iterations(result: CellResult) -> int:
    trained = result.record.trained if result.record else []
    return sum(epoch.iterations for epoch in trained)


def _of_curve(cell: Cell, curve: Curve, step: int) -> Iterator[tuple[object, ...]]:
    place = (cell.strategy.value, cell.treatment, cell.gpus, cell.nodes, cell.batch)
    run = (cell.seed, cell.repeat)
    arrays = (curve.loss, curve.step_s, curve.lr)
    epochs = zip(curve.epochs, curve.starts, strict=True)
    for number, (epoch, start) in enumerate(epochs, start=1):
        first = start + -start % step
        for index in range(first, start + epoch.iterations, step):
            iteration = (number, epoch.role, index + 1)
            values = (f"{array[index]:.7g}" for array in arrays)
            yield (*place, *run, *iteration, *values)
