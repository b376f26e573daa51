"""Tables of training quality: after the last epoch (lab Q4, Table 4), and by epoch."""

from collections.abc import Callable, Iterable, Sequence

from hpml_jobs.checks.result import Affected
from hpml_jobs.core.cell import Cell
from hpml_jobs.core.record import Record
from hpml_jobs.report.merge import learning
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.rows import Row
from hpml_jobs.report.table import Block, Line, Sheet, Table
from hpml_jobs.report.tables import over_seeds
from hpml_jobs.report.tables.builder import (
    Columns,
    TableText,
    column,
    left_out,
    row_name,
    row_table,
)
from hpml_jobs.report.text import captions
from hpml_jobs.report.text.captions import units
from hpml_jobs.report.text.comparisons import mean_text
from hpml_jobs.report.text.numbers import DASH, accuracy, bits, count, loss

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


def table4(group: ConditionGroup) -> Table | None:
    """Return training quality by place; None unless more was requested than the protocol needs."""
    evaluated_slugs = {
        result.slug for result in group.cells if result.cell and _learns(result.cell)
    }
    rows = [row for row in group.rows if evaluated_slugs & set(row.cells)]
    shown_rows = [row for row in rows if row.timing and learning.runs(group, row)]
    if not shown_rows:
        return None
    heads: tuple[Columns[Row], ...] = (
        Columns("global batch", (column("global_batch", "", lambda e: e.global_batch, count),)),
        Columns("lr", (column("lr", "", lambda e: _lr(learning.runs(group, e)[0]), _rate),)),
        Columns("epochs", (column("epochs", "", lambda e: learning.epochs_of(group, e)),)),
        Columns("seeds", (column("seeds", "", lambda e: learning.seeds(group, e)),)),
        *over_seeds.columns(group, "train_loss", "training loss", learning.training_loss(-1), loss),
        *_accuracy_columns(group, shown_rows),
        *_text_columns(group, shown_rows),
    )
    caption = (
        TABLE_4.format(units=units(group.device)),
        over_seeds.OVER_SEEDS,
        *([TEXT] if _has_text(group, shown_rows) else []),
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
        *over_seeds.one_seed(group, shown_rows),
        *over_seeds.shorter(group, shown_rows),
        *missing,
    ]
    return row_table(group, text, shown_rows, heads, notes)


def _has_text(group: ConditionGroup, rows: Iterable[Row]) -> bool:
    return any(
        learning.bits_per_byte(record) is not None for row in rows for record in group.records(row)
    )


def _accuracy_columns(group: ConditionGroup, rows: Sequence[Row]) -> tuple[Columns[Row], ...]:
    """Return the columns of accuracy; of text, which has none, they are in the CSV only."""
    of_training = over_seeds.columns(
        group, "train_accuracy", "training acc., %", learning.training_accuracy(-1), accuracy
    )
    of_test = over_seeds.columns(
        group, "test_accuracy", "test acc., %", learning.test_accuracy, accuracy
    )
    both = (*of_training, *of_test)
    return tuple(c for c in both if not c.head) if _has_text(group, rows) else both


def _text_columns(group: ConditionGroup, rows: Sequence[Row]) -> tuple[Columns[Row], ...]:
    """Return the columns of held-out text; none without text."""
    if not _has_text(group, rows):
        return ()

    def unigram(row: Row) -> float | None:
        records = learning.runs(group, row)
        return records[0].unigram_bits_per_byte if records else None

    return (
        *over_seeds.columns(group, "test_loss", "test loss", learning.test_loss, loss),
        *over_seeds.columns(
            group, "test_bits_per_byte", "test bits/byte", learning.bits_per_byte, bits
        ),
        Columns("unigram bits/byte", (column("unigram_bits_per_byte", "", unigram, bits),)),
    )


def _learns(cell: Cell) -> bool:
    has_text = cell.workload.bytes_per_token is not None  # its bits per byte are always shown
    return cell.evaluate or has_text or cell.epochs > cell.protocol.epochs


def _lr(record: Record) -> float | None:
    last = learning.training(record.ranks[0])[-1].lr
    return last[1] if last else None


def _rate(value: float) -> str:
    return f"{value:.4g}"


def evaluation(group: ConditionGroup) -> Table | None:
    """Return accuracy and loss after each epoch; None if no epoch was evaluated."""
    shown_rows = [e for e in group.timed if any(map(learning.was_evaluated, group.records(e)))]
    if not shown_rows:
        return None
    most = max(learning.epochs_of(group, row) for row in shown_rows)
    shown = shown_epochs(most)
    is_text = _has_text(group, shown_rows)
    tested = learning.evaluated_bits_per_byte if is_text else learning.evaluated
    heads = [
        tuple(str(n + 1) for n in shown[i : i + ABREAST]) for i in range(0, len(shown), ABREAST)
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
                        for n in shown
                    ),
                    *(_mean_text(group, row, learning.training_loss(n), loss) for n in shown),
                ),
            )
            for row in shown_rows
        ),
        caption=(EVALUATION_OF_TEXT if is_text else EVALUATION, over_seeds.OVER_SEEDS),
        setting=captions.setting(group),
        notes=(*over_seeds.one_seed(group, shown_rows), *over_seeds.shorter(group, shown_rows)),
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
    group: ConditionGroup, row: Row, of: learning.OfRun, words: Callable[[float], str]
) -> str:
    mean = learning.over_seeds(learning.runs(group, row), of)
    return mean_text(mean, words) if mean else DASH


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
