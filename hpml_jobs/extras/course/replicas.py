"""Answers about what ranks read and hold: shuffling (Q5), gradients alone (Q7)."""

from collections.abc import Sequence

from hpml_jobs.core.check_result import Affected
from hpml_jobs.extras.course.words import cells, doubt, unanswered, unusable, usable
from hpml_jobs.report.frame import learning
from hpml_jobs.report.page.formats import Answer
from hpml_jobs.report.training.replicas import (
    buffer_comparison,
    parameters_and_buffers,
    set_epoch_answers,
)
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row

Q5 = ("Q5", "Shuffling and set_epoch")


def why_set_epoch(group: ConditionGroup) -> Answer:
    """Answer Q5: why DDP needs `set_epoch`, by the orders that ranks have read."""
    rows = [row for row in group.timed if learning.runs(group, row)]
    without = [
        row for row in rows if any(not record.cell.set_epoch for record in group.records(row))
    ]
    meaning = (
        "DistributedSampler shuffles by seed + epoch, and only set_epoch gives it the epoch; a "
        "single process, and so dp, reshuffles by itself"
    )
    answers = set_epoch_answers(group, rows)
    if not answers:
        why = "needs cells with set_epoch=false (grid=shuffling)"
        text = f"{meaning[0].upper()}{meaning[1:]}. Not measured here: {why}."
        return Answer(*Q5, text, is_answered=False)
    text = f"Without it every epoch repeats one order: {' '.join(answers)} {meaning}."
    evidence = f"Table Shuffling; {cells(group, without)}"
    return Answer(*Q5, text, evidence, doubt(group, without, Affected.LEARNING))


Q7 = ("Q7", "Gradients alone")


def gradients_enough(group: ConditionGroup) -> Answer:
    """Answer Q7: whether ranks that exchange gradients only hold the same model."""
    parallel = [row for row in group.timed if row.gpus > 1]
    rows = usable(group, parallel, Affected.LEARNING)
    measured = [row for row in parallel if any(parameters_and_buffers(group, row))]
    hashed = [row for row in rows if row in measured]
    compared = buffer_comparison(group, rows)
    if compared:
        return Answer(
            *Q7,
            compared,
            f"Table Replicas and accuracy; {cells(group, hashed)}",
            doubt(group, hashed, Affected.LEARNING),
        )
    if measured and not hashed:
        return unusable(*Q7, f"Table Replicas and accuracy; {cells(group, measured)}")
    need = "needs cells with sync_buffers=off beside the others (grid=buffers)"
    if not hashed:
        return unanswered(*Q7, need)
    text = (
        f"Only in part: {_hashes(group, hashed)}. The effect on accuracy is not measured: {need}."
    )
    return Answer(
        *Q7, text, f"Table Replicas and accuracy; {cells(group, hashed)}", is_answered=False
    )


def _hashes(group: ConditionGroup, rows: Sequence[Row]) -> str:
    """Return for each strategy whether replicas end equal, by their hashes."""
    texts: dict[str, None] = {}
    for row in rows:
        parameters, buffers = parameters_and_buffers(group, row)
        epochs = learning.epochs_of(group, row)
        strategy = row.strategy.value
        texts[
            f"after {epochs} epochs of {strategy} the parameters of all ranks are "
            f"{_equal(parameters)}, their BatchNorm buffers are {_equal(buffers)}"
        ] = None
    return "; ".join(texts)


def _equal(same: str | None) -> str:
    return {"equal": "equal", "differ": "different"}.get(same or "", "unknown")
