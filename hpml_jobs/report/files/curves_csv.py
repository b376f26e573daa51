"""curves.csv: every iteration of every run."""

import csv
import io
from collections.abc import Iterator
from math import ceil

from hpml_jobs.core.cell import Cell
from hpml_jobs.report.frame import curves
from hpml_jobs.report.frame.curves import Curve, NoCurveError
from hpml_jobs.report.report import Report
from hpml_jobs.results.cells import CellResult

ROWS = 200_000
"""The approximate maximum of rows; `every` is k if each k-th iteration is listed."""

_HEAD = (
    *("group", "strategy", "treatment", "gpus", "nodes", "batch", "seed", "repeat"),
    *("epoch", "role", "iteration", "loss", "step_s", "lr", "every"),
)


def curves_csv(report: Report, max_rows: int = ROWS) -> str | None:
    """Return curves.csv of all runs with curves, 7 digits per value; None if no run has any."""
    runs = [
        (group.number, result)
        for group in report.groups
        for result in group.source.cells
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
        except NoCurveError:  # the table of replicas has it in its notes
            continue
        if result.cell is not None:
            table.writerows(
                (group, *row, step) for row in _rows(result.cell, curve, step)
            )
    return text.getvalue() if text.tell() > empty else None


def _iterations(result: CellResult) -> int:
    trained = result.record.trained if result.record else []
    return sum(epoch.iterations for epoch in trained)


def _rows(cell: Cell, curve: Curve, step: int) -> Iterator[tuple[object, ...]]:
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
