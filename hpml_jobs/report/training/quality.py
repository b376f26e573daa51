"""Training quality after the last epoch (lab Q4, Table 4) and by epoch: tables and words."""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, NamedTuple, Self

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.check_result import Affected
from hpml_jobs.report.frame import captions, learning
from hpml_jobs.report.frame.answers import (
    Answer,
    cells,
    doubt,
    main_rows,
    unanswered,
    unusable,
    usable,
)
from hpml_jobs.report.frame.builder import (
    Number,
    Shown,
    TableText,
    columns_of,
    left_out,
    line_table,
    row_name,
)
from hpml_jobs.report.frame.captions import cell_words, shown, unit, units
from hpml_jobs.report.frame.learning import Mean, compare_means, mean_text
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
    group: ConditionGroup, row: Row, of: learning.OfRun, words: Callable[[float], str]
) -> str:
    mean = learning.mean_of(group, row, of)
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


Q4_1 = ("Q4.1", "Training quality with a large batch")
Q4_2 = ("Q4.2", "Remedies for large batches")
EPOCH = 5
"""The epoch that the lab compares."""

SMALL_BATCH = 128
"""The batch on one GPU that the lab compares with."""

GOYAL = (
    "Goyal et al. (2017) scale the learning rate linearly with the global batch (recipe=scaled) "
    "and raise it gradually in the first epochs (recipe=warmup)"
)


def large_batch(group: ConditionGroup) -> Answer:
    """Answer Q4.1: loss and accuracy of the fifth epoch, the largest batch against one GPU's."""
    trained = [
        row
        for row in group.timed
        if learning.epochs_of(group, row) >= EPOCH and row.treatment == group.main_path
    ]
    large = [row for row in main_rows(group) if row in trained]
    small = [row for row in trained if row.is_baseline]
    if not (large and small):
        return unanswered(
            *Q4_1,
            f"needs {EPOCH} epochs on one and on several {units(group.device)} (grid=large_batch, "
            f"or epochs={EPOCH} evaluate=true)",
        )
    most = max(large, key=lambda row: (row.gpus, row.batch_per_gpu))
    one = min(small, key=lambda row: abs(row.batch_per_gpu - SMALL_BATCH))
    usual = usable(group, [most, one], Affected.LEARNING)
    if len(usual) < 2:
        return unusable(*Q4_1, f"Table 4; {cells(group, [most, one])}")
    parts = [_compared(group, most, one, what) for what in ("loss", "accuracy")]
    text = f"In the {EPOCH}th epoch, {', '.join(parts)}."
    if one.batch_per_gpu != SMALL_BATCH:
        text += f" There is no cell of batch {SMALL_BATCH} on one {unit(group.device)}."
    evidence = f"Table 4, table Accuracy and loss by epoch; {cells(group, [most, one])}"
    return Answer(*Q4_1, text, evidence, doubt(group, [most, one], Affected.LEARNING))


def _compared(group: ConditionGroup, most: Row, one: Row, what: str) -> str:
    is_loss = what == "loss"
    of = (learning.training_loss if is_loss else learning.training_accuracy)(EPOCH - 1)
    words = loss if is_loss else accuracy
    means = [learning.mean_of(group, row, of) for row in (most, one)]
    names = [cell_words(row.place, group.device) for row in (most, one)]
    end = "" if is_loss else " %"
    texts = [
        f"{shown(mean_text(mean, words), group, Affected.LEARNING, row)}{end} of {name}"
        if mean
        else f"unknown of {name}"
        for mean, name, row in zip(means, names, (most, one), strict=True)
    ]
    first, second = means
    judged = f" ({compare_means(first, second)})" if first and second else ""
    return f"training {what} {texts[0]} against {texts[1]}{judged}"


def remedies(group: ConditionGroup) -> Answer:
    """Answer Q4.2: two remedies for large batches, with the cells that tried them."""
    rows = main_rows(group)
    tried = [row for row in rows if any(record.cell.recipe_label for record in group.records(row))]
    plain = {row.place: row for row in rows if row.setup.is_plain}
    compared = [
        (row, beside)
        for row in usable(group, tried, Affected.LEARNING)
        if (beside := plain.get(row.place._replace(setup=row.setup._replace(treatment=row.path))))
    ]
    texts = [text for row, beside in compared if (text := _effect(group, row, beside))]
    if tried and not usable(group, tried, Affected.LEARNING):
        return unusable(*Q4_2, f"Table 4; {cells(group, tried)}")
    if not texts:
        why = "needs cells with and without a recipe (grid=large_batch)"
        return Answer(*Q4_2, f"{GOYAL}. Not measured here: {why}.", is_answered=False)
    evidence = f"Table 4; {cells(group, [row for row, _ in compared])}"
    text = f"{GOYAL}. Here: {'; '.join(texts)}."
    return Answer(*Q4_2, text, evidence, doubt(group, tried, Affected.LEARNING))


def _effect(group: ConditionGroup, row: Row, beside: Row) -> str:
    means = [learning.mean_of(group, each, learning.test_accuracy) for each in (row, beside)]
    first, second = means
    if first is None or second is None:
        return ""
    texts = [
        shown(mean_text(mean, accuracy), group, Affected.LEARNING, each)
        for mean, each in ((first, row), (second, beside))
    ]
    return (
        f"{cell_words(row.place, group.device)} has a test accuracy of "
        f"{texts[0]} %, without the recipe {texts[1]} % "
        f"({compare_means(first, second)})"
    )
