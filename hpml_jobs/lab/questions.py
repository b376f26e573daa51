"""The section of a page with the questions of the lab: for each its answer and its table."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.text import PROGRAM, with_command
from hpml_jobs.lab import answers
from hpml_jobs.lab.answers import LabAnswer, LabBlock
from hpml_jobs.report.frame.picture import Picture
from hpml_jobs.report.frame.table import row_name
from hpml_jobs.report.page.contents import figures
from hpml_jobs.report.page.formats import Item, Paragraph, Section, ShownTable
from hpml_jobs.report.report import Report


class Question(NamedTuple):
    """A question, its answer, the label of its tables, and the grid that measures it.

    `is_needed` says whether a cell is of its block. Those of the grid lab are about times.
    `shows_table`: else the sentence says it all. `pictures`: the names of those below it.
    """

    title: str
    answer: Callable[[LabBlock], LabAnswer]
    table: str
    is_needed: Callable[[Cell], bool] = lambda cell: cell.gpus > 1
    grid: str = "lab"
    shows_table: bool = True
    pictures: tuple[str, ...] = ()


QUESTIONS = (
    Question(
        "Q1: Time by batch",
        answers.time_by_batch,
        "q1",
        lambda cell: cell.is_baseline and not cell.quantize,
    ),
    Question(
        "Q2: Weak and strong scaling",
        answers.scaling,
        "table1-",
        pictures=("speedup", "gap"),
    ),
    Question("Q3.1: Computation and communication", answers.communication, "table2-"),
    Question("Q3.2: Bandwidth", answers.bandwidth, "table3-"),
    Question(
        "Q4.1: Large batch",
        answers.large_batch,
        "table4",
        lambda cell: cell.evaluate and cell.gpus > 1,
        "large_batch",
        pictures=("loss",),
    ),
    Question(
        "Q4.2: Remedies for large batches",
        answers.remedies,
        "table4",
        lambda cell: cell.evaluate and bool(cell.recipe_label),
        "large_batch",
        shows_table=False,
    ),
    Question(
        "Q5: Shuffling by set_epoch",
        answers.shuffling,
        "shuffling",
        lambda cell: not cell.set_epoch,
        "shuffling",
    ),
    Question(
        "Q6: Are gradients the only messages?",
        answers.messages,
        "communication",
        shows_table=False,
    ),
    Question(
        "Q7: Are gradients alone enough?",
        answers.replicas,
        "replicas",
        lambda cell: cell.sync_buffers is not None,
        "buffers",
    ),
    Question(
        "Part B: Quantization to int8",
        answers.quantization,
        "quantization",
        lambda cell: cell.quantize is not None,
        "quantize",
        pictures=("histograms",),
    ),
)
"""The questions in the order of the assignment."""


def section(
    report: Report, drawn: dict[str, Picture], own_words: str | None = None
) -> Section:
    """Return the section of a page with all questions, their tables folded.

    With `own_words`, below each answer of a hand-in, the tables are open.
    """
    printed: set[str] = set()
    places = (Paragraph(own_words),) if own_words else ()
    sections = []
    for number, question in enumerate(QUESTIONS):
        answer, *shown = _items(report, question, printed, own_words is not None)
        below = figures(drawn, *question.pictures) if shown else ()
        items = (answer, *places, *shown, *below)
        sections.append(Section(f"question{number}", question.title, items))
    return Section(
        "questions",
        "Questions of the lab",
        sections=tuple(sections),
    )


def _items(
    report: Report, question: Question, printed: set[str], are_open: bool
) -> Iterator[Item]:
    """Yield the answer to a question and its tables; not measured, what would measure it."""
    block = _block(report, question)
    answer = question.answer(block) if block else LabAnswer()
    if block is None or not answer.text:
        is_cpu = any(keys.get("device") == "cpu" for keys in report.keys)
        grid = "grid=hw5 device=cpu" if is_cpu else f"grid={question.grid}"
        yield Paragraph(
            with_command(
                "Not measured. To measure it",
                f"{PROGRAM} {grid} study={report.study}",
            )
        )
        return
    yield Paragraph(answer.text)
    names = [row_name(block.source, row) for row in answer.rows]
    for table in block.tables if question.shows_table else ():
        lines = tuple(line for line in table.lines if not names or line.label in names)
        yield ShownTable(
            msgspec.structs.replace(table, lines=lines),
            tuple(table.caption_after(printed, [table.setting])),
            tuple(table.notes_after(printed)) if lines == table.lines else (),
            is_open=are_open,
        )


def _block(report: Report, question: Question) -> LabBlock | None:
    """Return the block of the group with the most rows of a question, if any.

    Times are of a group that trained no more epochs than they need, if there is one.
    """
    blocks = []
    for group in report.first_screen.groups:
        source = group.source
        needed = [
            row
            for row in source.timed
            if any(question.is_needed(record.cell) for record in row.records)
        ]
        tables = [
            table
            for table in (*group.tables, *report.tables)
            if table.label.startswith(question.table)
        ]
        if needed and tables:
            cell = source.a_cell
            is_best = question.grid == "lab" and cell.epochs <= cell.protocol.epochs
            most = max((row.gpus, row.batch_per_gpu) for row in needed)
            rows = [
                row
                for row in source.timed
                if (row.gpus, row.batch_per_gpu) == most
                if row.setup.is_plain or row in needed
            ]
            blocks.append(
                ((is_best, len(needed)), LabBlock(report, group, rows, tables))
            )
    best = max(blocks, key=lambda block: block[0], default=None)
    return best and best[1]
