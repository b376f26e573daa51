"""Table of accuracy and loss by epoch."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from hpml_jobs.core.measurements import EvaluationShare
from hpml_jobs.core.record import Record
from hpml_jobs.extras.learning.quality import has_text
from hpml_jobs.extras.learning.text import bits, record_bits_per_byte
from hpml_jobs.report.frame import captions, learning
from hpml_jobs.report.frame.builder import GroupContext, row_name
from hpml_jobs.report.frame.learning import OfRun
from hpml_jobs.report.frame.numbers import DASH, accuracy, loss
from hpml_jobs.report.frame.table import Block, Line, Sheet, Table
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row

COLUMNS, ABREAST = 8, 3
"""The most epochs with a column on a page (the CSV has all), and columns per block."""


def was_evaluated(record: Record) -> bool:
    """Return whether the run was tested after its epochs of training."""
    return any(
        epoch.share for rank in record.ranks for epoch in learning.training(rank)
    )


def evaluated(number: int) -> OfRun:
    """Return the accuracy after an epoch (from 0), over all ranks' shares of the test set."""
    return _over_shares(number, lambda share: share.correct)


def evaluated_bits_per_byte(number: int) -> OfRun:
    """Return the loss after an epoch (from 0) in bits per byte, over all ranks' shares."""
    loss = _over_shares(number, lambda share: share.loss_sum)
    return lambda record: record_bits_per_byte(record, loss(record))


def _over_shares(
    number: int, total: Callable[[EvaluationShare], float | None]
) -> OfRun:
    def mean(record: Record) -> float | None:
        totals, samples = [], 0
        for epochs in map(learning.training, record.ranks):
            share = epochs[number].share if number < len(epochs) else None
            if share is None:
                continue
            share_total = total(share)
            if share_total is not None:
                totals.append(share_total)
                samples += share.samples
        return sum(totals) / samples if samples else None

    return mean


class ShownTest(NamedTuple):
    """How a test after an epoch is shown: the number of an epoch's test, and its words."""

    head: str
    quantity: Callable[[int], OfRun]
    words: Callable[[float], str]
    caption: str


OF_CLASSES = ShownTest(
    "test accuracy, %",
    evaluated,
    accuracy,
    "Accuracy on the whole test set after each epoch; every rank tests its share, and the counts "
    "are exact. Average training loss of the epoch.",
)
OF_TEXT = ShownTest(
    "test bits/byte",
    evaluated_bits_per_byte,
    bits,
    "Loss on the held-out text after each epoch in bits per byte (loss / ln 2); every rank tests "
    "its share. Average training loss of the epoch.",
)


def evaluation(context: GroupContext) -> Table | None:
    """Return accuracy and loss after each epoch; None if no epoch was evaluated."""
    group = context.group
    rows = [row for row in group.timed if any(map(was_evaluated, group.records(row)))]
    if not rows:
        return None
    epochs = shown_epochs(max(learning.epochs_of(group, row) for row in rows))
    columns = [str(epoch + 1) for epoch in epochs]
    begins = range(0, len(columns), ABREAST)
    abreast = [tuple(columns[begin : begin + ABREAST]) for begin in begins]
    test = OF_TEXT if has_text(group, rows) else OF_CLASSES
    lines = tuple(_line(group, row, test, epochs) for row in rows)
    return Table(
        label="evaluation",
        title="Accuracy and loss by epoch",
        corner="after epoch",
        blocks=tuple(
            Block(head=block_head, columns=block_columns)
            for block_head in (test.head, "training loss")
            for block_columns in abreast
        ),
        lines=lines,
        caption=(test.caption, learning.OVER_SEEDS),
        setting=captions.setting(group),
        notes=(*learning.one_seed(group, rows), *learning.shorter(group, rows)),
        sheet=_sheet(group, rows),
    )


def _line(
    group: ConditionGroup, row: Row, test: ShownTest, epochs: Sequence[int]
) -> Line:
    """Return the line of a row: the test of each epoch, then its loss in training."""
    texts = []
    for epoch in epochs:
        texts.append(_mean_text(group, row, test.quantity(epoch), test.words))
    for epoch in epochs:
        texts.append(_mean_text(group, row, learning.training_loss(epoch), loss))
    return Line(label=row_name(group, row), texts=tuple(texts))


def shown_epochs(epochs: int) -> list[int]:
    """Return the epochs with a column, from 0: all, or first, last and some between.

    >>> shown_epochs(3), shown_epochs(90)
    ([0, 1, 2], [0, 13, 25, 38, 51, 64, 76, 89])
    """
    if epochs <= COLUMNS:
        return list(range(epochs))
    return [round(number * (epochs - 1) / (COLUMNS - 1)) for number in range(COLUMNS)]


def _mean_text(
    group: ConditionGroup, row: Row, quantity: OfRun, words: Callable[[float], str]
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
            tested = learning.over_seeds(runs, evaluated(number))
            trained = learning.over_seeds(runs, learning.training_loss(number))
            bits_of_epoch = learning.over_seeds(runs, evaluated_bits_per_byte(number))
            rows.append(
                (
                    *(*place, row.batch_per_gpu, number + 1, len(runs), seeds),
                    *(tested or (None, None)),
                    *(trained or (None, None)),
                    *(bits_of_epoch or (None, None)),
                )
            )
    return Sheet(columns=_SHEET, rows=tuple(rows))
