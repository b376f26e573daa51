"""Answers about training quality: large batches (Q4.1), remedies (Q4.2), shuffling (Q5)."""

from hpml_jobs.checks.result import Affected
from hpml_jobs.report.frame import learning
from hpml_jobs.report.frame.answers import Answer, cells, doubt, unanswered, usable
from hpml_jobs.report.frame.captions import cell_label, unit, units
from hpml_jobs.report.frame.comparisons import compare_means, mean_text
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import accuracy, loss
from hpml_jobs.report.frame.rows import Row
from hpml_jobs.report.scaling.questions import main_strategy
from hpml_jobs.report.training.shuffling import set_epoch_answers

QUALITY = ("Q4.1", "Training quality with a large batch")
REMEDIES = ("Q4.2", "Remedies for large batches")
SHUFFLING = ("Q5", "Shuffling and set_epoch")
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
        if _trained_enough(group, row) and row.treatment == group.main_path
    ]
    strategy = main_strategy(group)
    large = [row for row in trained if row.gpus > 1 and row.strategy is strategy]
    small = [row for row in trained if row.is_baseline]
    if not (large and small):
        return unanswered(
            *QUALITY,
            f"needs {EPOCH} epochs on one and on several {units(group.device)} (grid=large_batch, "
            f"or epochs={EPOCH} evaluate=true)",
        )
    most = max(large, key=lambda row: (row.gpus, row.batch_per_gpu))
    one = min(small, key=lambda row: abs(row.batch_per_gpu - SMALL_BATCH))
    usual = usable(group, [most, one], Affected.LEARNING)
    if len(usual) < 2:
        return unanswered(*QUALITY, "a check failed for the loss or accuracy of these cells")
    parts = [_compared(group, most, one, what) for what in ("loss", "accuracy")]
    text = f"In the {EPOCH}th epoch, {', '.join(parts)}."
    if one.batch_per_gpu != SMALL_BATCH:
        text += f" There is no cell of batch {SMALL_BATCH} on one {unit(group.device)}."
    evidence = f"Table 4, table Accuracy and loss by epoch; {cells(group, [most, one])}"
    return Answer(*QUALITY, text, evidence, doubt(group, [most, one], Affected.LEARNING))


def _trained_enough(group: ConditionGroup, row: Row) -> bool:
    return learning.epochs_of(group, row) >= EPOCH


def _compared(group: ConditionGroup, most: Row, one: Row, what: str) -> str:
    is_loss = what == "loss"
    of = (learning.training_loss if is_loss else learning.training_accuracy)(EPOCH - 1)
    words = loss if is_loss else accuracy
    means = [learning.over_seeds(learning.runs(group, row), of) for row in (most, one)]
    names = [cell_label(row.place, group.device) for row in (most, one)]
    end = "" if is_loss else " %"
    texts = [
        f"{mean_text(mean, words)}{end} of {name}" if mean else f"unknown of {name}"
        for mean, name in zip(means, names, strict=True)
    ]
    first, second = means
    judged = f" ({compare_means(first, second)})" if first and second else ""
    return f"training {what} {texts[0]} against {texts[1]}{judged}"


def remedies(group: ConditionGroup) -> Answer:
    """Answer Q4.2: two remedies for large batches, with the cells that tried them."""
    strategy = main_strategy(group)
    rows = [row for row in group.timed if row.gpus > 1 and row.strategy is strategy]
    tried = [row for row in rows if _has_recipe(group, row)]
    plain = {row.place: row for row in rows if row.setup.is_plain}
    compared = [
        (row, beside)
        for row in usable(group, tried, Affected.LEARNING)
        if (beside := plain.get(row.place._replace(setup=row.setup._replace(treatment=row.path))))
    ]
    texts = [text for row, beside in compared if (text := _effect(group, row, beside))]
    if not texts:
        why = "needs cells with and without a recipe (grid=large_batch)"
        return Answer(*REMEDIES, f"{GOYAL}. Not measured here: {why}.", is_answered=False)
    evidence = f"Table 4; {cells(group, [row for row, _ in compared])}"
    text = f"{GOYAL}. Here: {'; '.join(texts)}."
    return Answer(*REMEDIES, text, evidence, doubt(group, tried, Affected.LEARNING))


def _has_recipe(group: ConditionGroup, row: Row) -> bool:
    return any(record.cell.recipe_label for record in group.records(row))


def _effect(group: ConditionGroup, row: Row, beside: Row) -> str:
    means = [
        learning.over_seeds(learning.runs(group, each), learning.test_accuracy)
        for each in (row, beside)
    ]
    first, second = means
    if first is None or second is None:
        return ""
    return (
        f"{cell_label(row.place, group.device)} has a test accuracy of "
        f"{mean_text(first, accuracy)} %, without the recipe {mean_text(second, accuracy)} % "
        f"({compare_means(first, second)})"
    )


def shuffling(group: ConditionGroup) -> Answer:
    """Answer Q5: why DDP needs `set_epoch`, by the orders that ranks have read."""
    rows = [row for row in group.timed if learning.runs(group, row)]
    without = [row for row in rows if _skips_set_epoch(group, row)]
    meaning = (
        "DistributedSampler shuffles by seed + epoch, and only set_epoch gives it the epoch; a "
        "single process, and so dp, reshuffles by itself"
    )
    answers = set_epoch_answers(group, rows)
    if not answers:
        why = "needs cells with set_epoch=false (grid=shuffling)"
        text = f"{meaning[0].upper()}{meaning[1:]}. Not measured here: {why}."
        return Answer(*SHUFFLING, text, is_answered=False)
    text = f"Without it every epoch repeats one order: {' '.join(answers)} {meaning}."
    evidence = f"Table Shuffling; {cells(group, without)}"
    return Answer(*SHUFFLING, text, evidence, doubt(group, without, Affected.LEARNING))


def _skips_set_epoch(group: ConditionGroup, row: Row) -> bool:
    return any(not record.cell.set_epoch for record in group.records(row))
