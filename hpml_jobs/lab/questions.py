"""The questions of the lab: what a report has measured of each, and the table that has it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.text import PROGRAM, counted
from hpml_jobs.report.folder import write_all
from hpml_jobs.report.frame.table import Table
from hpml_jobs.report.page.formats import FactTable, Section
from hpml_jobs.report.report import Report, ReportGroup

TITLE = "Questions of the lab"
GRIDS = ("grid=lab", "grid=hw5")
HEADS = ("question", "measured", "where")


def _any(cell: Cell) -> bool:
    del cell
    return True


class Question(NamedTuple):
    """A question, the beginning of the labels of its tables, and what measures its cells.

    A table answers it only if the group has a cell that `is_needed`.
    """

    number: str
    title: str
    table: str
    words: str
    is_needed: Callable[[Cell], bool] = _any

    @property
    def heading(self) -> str:
        """Its number and its title."""
        return f"{self.number}: {self.title}"


QUESTIONS = (
    Question(
        "Q1", "time of an epoch by batch, one GPU", "q1", "gpus=1 batch=32,128,512"
    ),
    Question("Q2", "speedup, weak and strong scaling", "table1", "grid=lab"),
    Question("Q3.1", "computation and communication", "table2", "grid=lab"),
    Question("Q3.2", "bandwidth of the communication", "table3", "grid=lab"),
    Question("Q4.1", "quality with a large batch", "table4", "grid=large_batch"),
    Question(
        "Q4.2",
        "remedies for large batches",
        "table4",
        "grid=large_batch",
        lambda cell: bool(cell.recipe_label),
    ),
    Question("Q5", "shuffling by set_epoch", "shuffling", "grid=shuffling"),
    Question("Q6", "messages beside gradients", "communication", "grid=lab"),
    Question(
        "Q7",
        "replicas by gradients alone",
        "replicas",
        "grid=buffers",
        lambda cell: cell.sync_buffers is not None,
    ),
    Question("part B", "quantization to int8", "quantization", "grid=quantize"),
)
"""The questions in the order of the assignment."""


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write the files of a report, with the questions on the page of a study of the lab.

    Raises:
        HpmlError: as `folder.write_all`.
    """
    is_of_lab = any(grid in line for grid in GRIDS for line in report.commands)
    return write_all(report, folder, (section(report),) if is_of_lab else ())


def section(report: Report) -> Section:
    """Return the section of a page that says what a report has measured of each question."""
    rows = tuple(_row(report, question) for question in QUESTIONS)
    table = FactTable("What is measured", HEADS, rows)
    return Section("questions", TITLE, (table,))


def _row(report: Report, question: Question) -> tuple[str, str, str]:
    """Return a question with the rows of its tables; without any, what would measure it."""
    tables = [*_tables(report, question)]
    if not tables:
        return question.heading, "", f"not measured: {PROGRAM} {question.words}"
    rows = sum(len(table.lines) for _, table in tables)
    where = "; ".join(f"{table.title}{place}" for place, table in tables)
    return question.heading, counted(rows, "row"), where


def _tables(report: Report, question: Question) -> Iterator[tuple[str, Table]]:
    """Yield the tables of a question, each with the group it is in."""
    for group in report.first_screen.groups:
        if any(map(question.is_needed, _cells(group))):
            place = f" (group {group.number})" if report.several else ""
            yield from (
                (place, table)
                for table in group.tables
                if table.label.startswith(question.table)
            )
    for table in report.tables:
        if table.label.startswith(question.table):
            yield "", table


def _cells(group: ReportGroup) -> Iterator[Cell]:
    for result in group.source.cells:
        if result.cell is not None and result.measured:
            yield result.cell
