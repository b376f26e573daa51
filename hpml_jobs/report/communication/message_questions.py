"""Answers about messages: are gradients the only ones (Q6), and would they be enough (Q7)."""

from collections.abc import Sequence

from hpml_jobs.checks.result import Affected
from hpml_jobs.report.communication.messages import gradients_only
from hpml_jobs.report.frame import learning
from hpml_jobs.report.frame.answers import Answer, cells, doubt, unanswered, usable
from hpml_jobs.report.frame.captions import full_label
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.rows import Row
from hpml_jobs.report.training.replicas import buffer_comparison, parameters_and_buffers

MESSAGES = ("Q6", "Messages besides gradients")
ENOUGH = ("Q7", "Gradients alone")


def other_messages(group: ConditionGroup) -> Answer:
    """Answer Q6: the messages of an iteration that are not gradients."""
    texts = gradients_only(group)
    if not texts:
        return unanswered(
            *MESSAGES, "messages are counted in the instrumented epoch (protocol=full)"
        )
    text = "; ".join(texts)
    return Answer(*MESSAGES, f"Are gradients the only messages? {text}.", "Table Messages")


def gradients_enough(group: ConditionGroup) -> Answer:
    """Answer Q7: whether ranks that exchange gradients only hold the same model."""
    rows = usable(group, [row for row in group.timed if row.gpus > 1], Affected.LEARNING)
    hashed = [row for row in rows if any(parameters_and_buffers(group, row))]
    compared = buffer_comparison(group, rows)
    if compared:
        return Answer(
            *ENOUGH,
            compared,
            f"Table Replicas and accuracy; {cells(group, hashed)}",
            doubt(group, hashed, Affected.LEARNING),
        )
    need = "needs cells with sync_buffers=off beside the others (grid=buffers)"
    if not hashed:
        return unanswered(*ENOUGH, need)
    text = (
        f"Only in part: {_hashes(group, hashed)}. The effect on accuracy is not measured: {need}."
    )
    return Answer(
        *ENOUGH, text, f"Table Replicas and accuracy; {cells(group, hashed)}", is_answered=False
    )


def _hashes(group: ConditionGroup, rows: Sequence[Row]) -> str:
    """Return for each strategy whether replicas end equal, by their hashes."""
    texts: dict[str, None] = {}
    for row in rows:
        parameters, buffers = parameters_and_buffers(group, row)
        epochs = learning.epochs_of(group, row)
        strategy = full_label(row.setup, group.device).partition(" ")[0]
        texts[
            f"after {epochs} epochs of {strategy} the parameters of all ranks are "
            f"{_equal(parameters)}, their BatchNorm buffers are {_equal(buffers)}"
        ] = None
    return "; ".join(texts)


def _equal(same: str | None) -> str:
    return {"equal": "equal", "differ": "different"}.get(same or "", "unknown")
