"""W&B's export of a chart, a column for each run, as rows of a history."""

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.extras.exchange.csv_columns import SECONDS, STAMPS
from hpml_jobs.extras.exchange.csv_rows import CsvRow, FieldError, Rows, number

_SEPARATOR = " - "
_BOUNDS = ("__MIN", "__MAX")
_METRICS = (*SECONDS, *STAMPS)
"""What a chart may show: the name says that it is a time, and of what."""


class _Curve(NamedTuple):
    """A column of a chart: the run and the metric of its name."""

    column: str
    run: str
    metric: str

    @property
    def is_of_epochs(self) -> bool:
        """Whether it shows the seconds of epochs, not the moments of steps."""
        return self.metric.lower() in SECONDS


def unfolded(table: Rows) -> Rows:
    """Return the curves of a chart as rows of run,epoch,seconds or run,step,timestamp.

    A table that is no chart is returned as it is.

    Raises:
        HpmlError: the chart shows no times, or the means of several runs.
    """
    axis, *columns_of_curves = table.columns
    curves = [
        _Curve(column, *column.rsplit(_SEPARATOR, 1))
        for column in columns_of_curves
        if _SEPARATOR in column and not column.endswith(_BOUNDS)
    ]
    if not curves or "run" in table.named():
        return table
    for curve in curves:
        _check_metric(curve, table.header)
    table = table._replace(rows=sorted(table.rows, key=lambda row: _place(row, axis)))
    rows = list(chain(*(_rows_of(curve, table, axis) for curve in curves)))
    columns = tuple(dict.fromkeys(name for row in rows for name in row.fields))
    return table._replace(columns=columns, rows=rows)


def _check_metric(curve: _Curve, header: str) -> None:
    if curve.metric.lower() not in _METRICS:
        raise HpmlError(
            f"{header}: W&B's chart of {curve.metric}: if these are the seconds of an epoch, "
            f"write '{_SEPARATOR}seconds' in place of '{_SEPARATOR}{curve.metric}' in this line; "
            "else export the history (docs/share.md)"
        )


def _rows_of(curve: _Curve, table: Rows, axis: str) -> Iterator[CsvRow]:
    """Yield the rows of a curve as those of its run; epochs are counted from 0."""
    with_time = [row for row in table.rows if curve.column in row.fields]
    for epoch, row in enumerate(with_time):
        _check_single(row, curve, table.header)
        place = {"step": row.fields.get(axis, "")}
        if curve.is_of_epochs:
            place = {"epoch": str(epoch)}
        time = {curve.metric.lower(): row.fields[curve.column]}
        yield CsvRow(row.line, {"run": curve.run} | place | time)


def _place(row: CsvRow, axis: str) -> float:
    """Return the place of a row on the axis; of one without, in the order of the file."""
    try:
        return number(row.fields.get(axis, ""))
    except FieldError:
        return row.line


def _check_single(row: CsvRow, curve: _Curve, header: str) -> None:
    values = {row.fields.get(f"{curve.column}{bound}") for bound in _BOUNDS} - {None}
    if values - {row.fields[curve.column]}:
        raise HpmlError(
            f"{header}: W&B's chart of {curve.run} has the means of several runs or rows (line "
            f"{row.line}: {', '.join(sorted(map(str, values)))}): export it without groups, or the "
            "history (docs/share.md)"
        )
