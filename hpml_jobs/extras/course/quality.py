"""Answers about training with large batches: its quality (Q4.1), and remedies (Q4.2)."""

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.check_result import Affected
from hpml_jobs.extras.course.words import (
    cells,
    compare_means,
    doubt,
    main_rows,
    need,
    unanswered,
    unusable,
    usable,
)
from hpml_jobs.report.frame import learning
from hpml_jobs.report.frame.captions import cell_words, shown, unit, units
from hpml_jobs.report.frame.learning import mean_text
from hpml_jobs.report.frame.numbers import accuracy, loss
from hpml_jobs.report.page.formats import Answer
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row

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
        needed = (
            f"needs {EPOCH} epochs on one and on several {units(group.device)} (grid=large_batch, "
            f"or epochs={EPOCH} evaluate=true)"
        )
        return unanswered(*Q4_1, need(group, _is_long, needed))
    most = max(large, key=lambda row: (row.gpus, row.batch_per_gpu))
    baseline = min(small, key=lambda row: abs(row.batch_per_gpu - SMALL_BATCH))
    usual = usable(group, [most, baseline], Affected.LEARNING)
    if len(usual) < 2:
        return unusable(*Q4_1, f"Table 4; {cells(group, [most, baseline])}")
    parts = [_compared(group, most, baseline, what) for what in ("loss", "accuracy")]
    text = f"In the {EPOCH}th epoch, {', '.join(parts)}."
    if baseline.batch_per_gpu != SMALL_BATCH:
        text += f" There is no cell of batch {SMALL_BATCH} on one {unit(group.device)}."
    evidence = f"Table 4, epochs in record.json; {cells(group, [most, baseline])}"
    return Answer(
        *Q4_1, text, evidence, doubt(group, [most, baseline], Affected.LEARNING)
    )


def _is_long(cell: Cell) -> bool:
    return cell.epochs >= EPOCH


def _has_recipe(cell: Cell) -> bool:
    return cell.gpus > 1 and bool(cell.recipe_label)


def _compared(group: ConditionGroup, most: Row, baseline: Row, what: str) -> str:
    is_loss = what == "loss"
    training_value = learning.training_loss if is_loss else learning.training_accuracy
    value_of = training_value(EPOCH - 1)
    words = loss if is_loss else accuracy
    end = "" if is_loss else " %"
    means, texts = [], []
    for row in (most, baseline):
        mean = learning.mean_of(group, row, value_of)
        text = "unknown"
        if mean:
            text = (
                f"{shown(mean_text(mean, words), group, Affected.LEARNING, row)}{end}"
            )
        means.append(mean)
        texts.append(f"{text} of {cell_words(row.place, group.device)}")
    first, second = means
    judged = f" ({compare_means(first, second)})" if first and second else ""
    return f"training {what} {texts[0]} against {texts[1]}{judged}"


def remedies(group: ConditionGroup) -> Answer:
    """Answer Q4.2: two remedies for large batches, with the cells that tried them."""
    rows = main_rows(group)
    tried = [
        row
        for row in rows
        if any(record.cell.recipe_label for record in group.records(row))
    ]
    answered = usable(group, tried, Affected.LEARNING)
    if tried and not answered:
        return unusable(*Q4_2, f"Table 4; {cells(group, tried)}")
    plain = {row.place: row for row in rows if row.setup.is_plain}
    compared, texts = [], []
    for row in answered:
        without_recipe = row.setup._replace(treatment=row.path)
        beside = plain.get(row.place._replace(setup=without_recipe))
        if beside is not None:
            compared.append(row)
            texts += _effect(group, row, beside)
    if not texts:
        needed = "needs cells with and without a recipe (grid=large_batch)"
        why = need(group, _has_recipe, needed)
        return Answer(*Q4_2, f"{GOYAL}. Not measured here: {why}.", is_answered=False)
    evidence = f"Table 4; {cells(group, compared)}"
    text = f"{GOYAL}. Here: {'; '.join(texts)}."
    return Answer(*Q4_2, text, evidence, doubt(group, tried, Affected.LEARNING))


def _effect(group: ConditionGroup, row: Row, beside: Row) -> list[str]:
    """Return the test accuracy with a recipe and without it; nothing where one has none."""
    mean = learning.mean_of(group, row, learning.test_accuracy)
    mean_beside = learning.mean_of(group, beside, learning.test_accuracy)
    if mean is None or mean_beside is None:
        return []
    text = shown(mean_text(mean, accuracy), group, Affected.LEARNING, row)
    text_beside = shown(
        mean_text(mean_beside, accuracy), group, Affected.LEARNING, beside
    )
    return [
        f"{cell_words(row.place, group.device)} has a test accuracy of {text} %, without the "
        f"recipe {text_beside} % ({compare_means(mean, mean_beside)})"
    ]
