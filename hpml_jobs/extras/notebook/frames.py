"""pandas DataFrames of a study, for notebooks: the sheets of the report, iterations, states.

Columns are those of the CSV files; a missing number is NaN.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.report.files import csv_tables
from hpml_jobs.report.frame import curves
from hpml_jobs.report.frame.table import Table
from hpml_jobs.report.report import Report
from hpml_jobs.results.cells import CellResult
from hpml_jobs.results.figures import NAMES
from hpml_jobs.study.snapshot import CellState

if TYPE_CHECKING:
    import pandas as pd

    Frames = dict[str, pd.DataFrame]

STATE_COLUMNS = (
    *("slug", "outcome", "reason", "warning", "job", "node", "restarts", "gpus"),
    *("queued_s", "elapsed_s", "done", "left_s"),
)
"""The columns of the states: those fields of a CellState that every cell may have."""


def sheets(report: Report) -> "Frames":
    """Return the sheets of the report by label; `cells` has all cells."""
    frames = {
        label: frame(sheet.rows, list(sheet.columns))
        for label, sheet in csv_tables.tables(report).items()
    }
    frames[csv_tables.CELLS] = _with_measured(frames[csv_tables.CELLS])
    return frames


def _with_measured(cells: "pd.DataFrame") -> "pd.DataFrame":
    """Return the cells with all columns of measured ones, also where no cell has numbers."""
    names = ["work_samples", *NAMES, *csv_tables.MEASURED, "checks"]
    return cells.reindex(
        columns=[*cells, *(name for name in names if name not in cells)]
    )


def titles(report: Report, frames: "Frames") -> "pd.DataFrame":
    """Return a row per table: its label, title and number of rows."""
    import pandas as pd  # noqa: PLC0415 - heavy, and only notebooks come here

    names = {table.label: table.title for table in _tables(report)}
    rows = [
        (label, _title(label, names), len(frame))
        for label, frame in frames.items()
        if label != csv_tables.CELLS and len(frame)
    ]
    return pd.DataFrame(rows, columns=["label", "title", "rows"])


def _title(label: str, names: dict[str, str]) -> str:
    """Return a table's title, or the label of a sheet, which has none.

    Tables 1 to 3 are one table per strategy, which ends the title.
    """
    if label in names:
        return names[label]
    of_strategies = [
        text
        for name, text in names.items()
        if name.rpartition("-")[0] in (label, f"{label}r")
    ]
    return of_strategies[0].rpartition(", ")[0] if of_strategies else label


def table(frames: "Frames", label: str) -> "pd.DataFrame":
    """Return a table of the report by its label.

    `table1-ddp`, as the report calls it, is Table 1 of one strategy; `table2r-ddp` is in Table 2.

    Raises:
        HpmlError: there is no such table; the message lists the labels.
    """
    if label in frames:
        return frames[label].copy()
    kind, _, strategy = label.rpartition("-")
    whole = frames.get(kind.removesuffix("r"))
    if whole is not None and strategy in set(Strategy):
        rows = whole[whole["strategy"] == strategy]
        if len(rows):
            return rows.reset_index(drop=True)
    labels = ", ".join(name for name, frame in frames.items() if len(frame))
    raise HpmlError(f"no table {label}; tables of this study: {labels}")


def iterations(results: Sequence[CellResult]) -> "pd.DataFrame":
    """Return a row per iteration and rank of the cells with numbers, over all epochs of training.

    Raises:
        NoCurveError: no cell has numbers, or one has no iterations; the message names it.
    """
    import pandas as pd  # noqa: PLC0415 - heavy, and only notebooks come here

    measured = [result for result in results if result.measured]
    if not measured:
        raise curves.NoCurveError(
            f"{results[0].slug} has no iterations: {results[0].reason}"
        )
    return pd.concat([_iterations(result) for result in measured], ignore_index=True)


def _iterations(result: CellResult) -> "pd.DataFrame":
    import numpy as np  # noqa: PLC0415 - comes with pandas
    import pandas as pd  # noqa: PLC0415

    try:
        of_ranks = curves.read_ranks(result)
    except curves.NoCurveError as fault:
        raise curves.NoCurveError(f"{result.slug}: {fault}") from fault
    ranks, count = of_ranks.loss.shape
    lengths = [epoch.iterations for epoch in of_ranks.epochs]
    numbers = np.repeat(np.arange(1, len(lengths) + 1), lengths)
    roles = np.repeat([epoch.role.value for epoch in of_ranks.epochs], lengths)
    return pd.DataFrame(
        {
            "slug": result.slug,
            "rank": np.repeat(np.arange(ranks), count),
            "epoch": np.tile(numbers, ranks),
            "role": np.tile(roles, ranks),
            "iteration": np.tile(np.arange(1, count + 1), ranks),
            "loss": of_ranks.loss.ravel(),
            "step_s": of_ranks.step_s.ravel(),
            "lr": of_ranks.lr.ravel(),
        }
    )


def states(cells: Sequence[CellState]) -> "pd.DataFrame":
    """Return a row per cell with its state; numbers that are not known are NaN."""
    rows = [[getattr(cell, name) for name in STATE_COLUMNS] for cell in cells]
    return frame(rows, list(STATE_COLUMNS)).assign(
        outcome=[cell.outcome.value for cell in cells]
    )


def choice(report: Report, documents: Iterable[dict[str, Any]]) -> "pd.DataFrame":
    """Return the cells of every group's choice, the fastest of a group first."""
    rows = [
        {"group": group.number, **cell, "cells": " ".join(cell["cells"])}
        for document in documents
        for group in report.groups
        if group.source.conditions == document["conditions"]
        for cell in document["cells"]
    ]
    return frame(rows)


def frame(rows: Sequence[Any], columns: list[str] | None = None) -> "pd.DataFrame":
    """Return rows as a DataFrame."""
    import pandas as pd  # noqa: PLC0415 - heavy, and only notebooks come here

    return _typed(pd.DataFrame(rows, columns=columns, dtype=object))


def _typed(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return a frame of objects with a type per column; None is NaN, also where all are None."""
    typed = frame.infer_objects()
    for name in typed:
        values = typed[name]
        if values.dtype == object:
            entries = values.dropna()
            is_number = entries.map(
                lambda v: isinstance(v, int | float) and not isinstance(v, bool)
            )
            if is_number.all():
                typed[name] = values.astype(float)
    return typed


def _tables(report: Report) -> Iterable[Table]:
    for group in report.groups:
        yield from group.tables
    yield from report.tables
