"""curves.csv: a row per iteration of every run, or per k-th iteration of long studies."""

import csv
import io
from collections.abc import Iterator
from math import ceil

from hpml_jobs.core.cell import Cell
from hpml_jobs.report.frame import learning
from hpml_jobs.report.frame.cells import CellResult
from hpml_jobs.report.report import Report
from hpml_jobs.report.training import curves
from hpml_jobs.report.training.curves import Curve, NoCurveError

ROWS = 200_000
"""The approximate maximum of rows; `every` is k if each k-th iteration is listed."""

_HEAD = (
    *("group", "strategy", "treatment", "gpus", "nodes", "batch", "seed", "repeat"),
    *("epoch", "role", "iteration", "loss", "step_s", "lr", "every"),
)


def curves_csv(report: Report, max_rows: int = ROWS) -> str | None:
    """Return curves.csv of all runs with curves, 7 digits per value; None if no run has any."""
    runs = [
        (g.number, result)
        for g in report.groups
        for result in g.source.cells
        if curves.has_curve(result)
    ]
    iterations = sum(_iterations(result) for _, result in runs)
    step = max(1, ceil(iterations / max_rows))
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(_HEAD)
    empty = text.tell()
    for group, result in runs:
        try:
            curve = curves.read(result)
        except NoCurveError:  # reported in the notes of the table of curves
            continue
        if result.cell is not None:
            table.writerows((group, *row, step) for row in _rows(result.cell, curve, step))
    return text.getvalue() if text.tell() > empty else None


def _iterations(result: CellResult) -> int:
    ranks = result.record.ranks if result.record else ()
    return sum(epoch.iterations for epoch in learning.training(ranks[0])) if ranks else 0


def _rows(cell: Cell, curve: Curve, step: int) -> Iterator[tuple[object, ...]]:
    place = (cell.strategy.value, cell.treatment, cell.gpus, cell.nodes, cell.batch, cell.seed)
    for number, (epoch, start) in enumerate(zip(curve.epochs, curve.starts, strict=True), start=1):
        first = -start % step
        for at in range(start + first, start + epoch.iterations, step):
            values = (f"{array[at]:.7g}" for array in (curve.loss, curve.step_s, curve.lr))
            yield (*place, cell.repeat, number, epoch.role, at + 1, *values)
