"""Answers to the questions of the lab, in sentences filled from the numbers of a study."""

from collections.abc import Callable

from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.questions import communication, learning, messages, timing
from hpml_jobs.report.questions.answer import Answer

QUESTIONS: tuple[Callable[[ConditionGroup], Answer], ...] = (
    timing.epoch_by_batch,
    timing.speedups,
    communication.communication_seconds,
    communication.bandwidths,
    learning.large_batch,
    learning.remedies,
    learning.shuffling,
    messages.other_messages,
    messages.gradients_enough,
)
"""The questions in their order."""


def answers(group: ConditionGroup) -> tuple[Answer, ...]:
    """Return an answer to each question, or one line on what it would need."""
    return tuple(answer(group) for answer in QUESTIONS)
