"""Training quality after the last epoch (lab Q4, Table 4) and by epoch: tables and words."""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, NamedTuple, Self

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.check_result import Affected
from hpml_jobs.report.frame import captions, learning
from hpml_jobs.report.frame.builder import (
    Number,
    Shown,
    TableText,
    columns_of,
    left_out,
    line_table,
    row_name,
)
from hpml_jobs.report.frame.learning import Mean
from hpml_jobs.report.frame.numbers import DASH, accuracy, bits, count, loss
from hpml_jobs.report.frame.table import Block, Line, Sheet, Table
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row

TABLE_4 = (
    "After the last epoch: average training loss, training accuracy (during training), and "
    "accuracy on the whole test set, mean over ranks. Global batch: of all {units}. lr: of the "
    "last iteration."
)
TEXT = (
    "Bits per byte: test loss / ln 2, on held-out text. Unigram: entropy of the frequencies of its "
    "bytes, the loss of a model that knows nothing else."
)
EVALUATION = (
    "Accuracy on the whole test set after each epoch; every rank tests its share, and the counts "
    "are exact. Average training loss of the epoch."
)
EVALUATION_OF_TEXT = (
    "Loss on the held-out text after each epoch in bits per byte (loss / ln 2); every rank tests "
    "its share. Average training loss of the epoch."
)
COLUMNS, ABREAST = 8, 3
"""The most epochs with a column on a page (the CSV has all), and columns per block."""


def _rate(value: float) -> str:
    return f"{value:.4g}"


class LearningLine(NamedTuple):
    """What a row learned; accuracies are of 1, and in the CSV only where samples are text."""

    global_batch: Annotated[int, Shown("global batch", count)]
    lr: Annotated[Number, Shown("lr", _rate)]
    epochs: Annotated[int, Shown("epochs")]
    seeds: Annotated[int, Shown("seeds")]
    train_loss: Annotated[Mean | None, learning.shown("training loss", loss)]
    train_accuracy: Annotated[Mean | None, learning.shown("{training}", accuracy)]
    test_accuracy: Annotated[Mean | None, learning.shown("{test}", accuracy)]
    test_loss: Annotated[Mean | None, learning.shown("test loss", loss)]
    test_bits_per_byte: Annotated[Mean | None, learning.shown("test bits/byte", bits)]
    unigram_bits_per_byte: Annotated[Number, Shown("unigram bits/byte", bits)]

    @classmethod
    def of(cls, group: ConditionGroup, row: Row) -> Self:
        """Return the line of a row."""
        runs = learning.runs(group, row)
        last = learning.training(runs[0].ranks[0])[-1].lr
        return cls(
            global_batch=row.global_batch,
            lr=last[1] if last else None,
            epochs=learning.epochs_of(group, row),
            seeds=learning.seeds(group, row),
            train_loss=learning.over_seeds(runs, learning.training_loss(-1)),
            train_accuracy=learning.over_seeds(runs, learning.training_accuracy(-1)),
            test_accuracy=learning.over_seeds(runs, learning.test_accuracy),
            test_loss=learning.over_seeds(runs, learning.test_loss),
            test_bits_per_byte=learning.over_seeds(runs, learning.bits_per_byte),
            unigram_bits_per_byte=runs[0].unigram_bits_per_byte,
        )


TEXT_ONLY = ("test_loss", "test_bits_per_byte", "unigram_bits_per_byte")


def table4(group: ConditionGroup) -> Table | None:
    """Return training quality by place; None unless more was requested than the protocol needs."""
    evaluated_slugs = {
        result.slug for result in group.cells if result.cell and _learns(result.cell)
    }
    rows = [row for row in group.rows if evaluated_slugs & set(row.cells)]
    shown_rows = [row for row in rows if row.timing and learning.runs(group, row)]
    if not shown_rows:
        return None
    is_text = _has_text(group, shown_rows)
    heads = columns_of(
        LearningLine,
        without=[] if is_text else TEXT_ONLY,
        training="" if is_text else "training acc., %",
        test="" if is_text else "test acc., %",
    )
    caption = (
        TABLE_4.format(units=captions.units(group.device)),
        learning.OVER_SEEDS,
        *([TEXT] if is_text else []),
    )
    text = TableText(
        "table4",
        "Table 4: training quality, last epoch",
        "Table 4",
        caption,
        affected=Affected.LEARNING,
    )
    missing = left_out(group, "", (row for row in rows if not row.timing))
    notes = [
        *learning.one_seed(group, shown_rows),
        *learning.shorter(group, shown_rows),
        *missing,
    ]
    lines = [(row, LearningLine.of(group, row)) for row in shown_rows]
    return line_table(group, text, lines, heads, notes)


def _has_text(group: ConditionGroup, rows: Iterable[Row]) -> bool:
    return any(
        learning.bits_per_byte(record) is not None for row in rows for record in group.records(row)
    )


def _learns(cell: Cell) -> bool:
    has_text = cell.workload.bytes_per_token is not None  # its bits per byte are always shown
    return cell.evaluate or has_text or cell.epochs > cell.protocol.epochs


def evaluation(group: ConditionGroup) -> Table | None:
    """Return accuracy and loss after each epoch; None if no epoch was evaluated."""
    shown_rows = [e for e in group.timed if any(map(learning.was_evaluated, group.records(e)))]
    if not shown_rows:
        return None
    most = max(learning.epochs_of(group, row) for row in shown_rows)
    epochs = shown_epochs(most)
    is_text = _has_text(group, shown_rows)
    tested = learning.evaluated_bits_per_byte if is_text else learning.evaluated
    heads = [
        tuple(str(n + 1) for n in epochs[i : i + ABREAST]) for i in range(0, len(epochs), ABREAST)
    ]
    return Table(
        label="evaluation",
        title="Accuracy and loss by epoch",
        corner="after epoch",
        blocks=tuple(
            Block(head=head, columns=columns)
            for head in ("test bits/byte" if is_text else "test accuracy, %", "training loss")
            for columns in heads
        ),
        lines=tuple(
            Line(
                label=row_name(group, row),
                texts=(
                    *(
                        _mean_text(group, row, tested(n), bits if is_text else accuracy)
                        for n in epochs
                    ),
                    *(_mean_text(group, row, learning.training_loss(n), loss) for n in epochs),
                ),
            )
            for row in shown_rows
        ),
        caption=(EVALUATION_OF_TEXT if is_text else EVALUATION, learning.OVER_SEEDS),
        setting=captions.setting(group),
        notes=(*learning.one_seed(group, shown_rows), *learning.shorter(group, shown_rows)),
        sheet=_sheet(group, shown_rows),
    )


def shown_epochs(epochs: int) -> list[int]:
    """Return the epochs with a column, from 0: all, or first, last and some between.

    >>> shown_epochs(3), shown_epochs(90)
    ([0, 1, 2], [0, 13, 25, 38, 51, 64, 76, 89])
    """
    if epochs <= COLUMNS:
        return list(range(epochs))
    return [round(number * (epochs - 1) / (COLUMNS - 1)) for number in range(COLUMNS)]


def _mean_text(
    group: ConditionGroup, row: Row, quantity: learning.OfRun, words: Callable[[float], str]
) -> str:
    mean = learning.mean_of(group, row, quantity)
    return learning.mean_text(mean, words) if mean else DASH


_SHEET = (
    *("strategy", "gpus", "nodes", "treatment", "batch", "epoch", "runs", "seeds"),
    *("test_accuracy", "test_accuracy_deviation", "train_loss", "train_loss_deviation"),
    *("test_bits_per_byte", "test_bits_per_byte_deviation"),
)


def _sheet(group: ConditionGroup, shown_rows: Sequence[Row]) -> Sheet:
    """Return a row for every place and epoch."""
    rows = []
    for row in shown_rows:
        place = (row.strategy.value, row.gpus, row.nodes, row.treatment)
        runs, seeds = learning.runs(group, row), learning.seeds(group, row)
        for number in range(learning.epochs_of(group, row)):
            tested = learning.over_seeds(runs, learning.evaluated(number))
            trained = learning.over_seeds(runs, learning.training_loss(number))
            bits_of_epoch = learning.over_seeds(runs, learning.evaluated_bits_per_byte(number))
            rows.append(
                (
                    *(*place, row.batch_per_gpu, number + 1, len(runs), seeds),
                    *(tested or (None, None)),
                    *(trained or (None, None)),
                    *(bits_of_epoch or (None, None)),
                )
            )
    return Sheet(columns=_SHEET, rows=tuple(rows))
