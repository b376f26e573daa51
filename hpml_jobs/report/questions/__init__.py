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

TIMES_ONLY = "Not known: the timings were imported, and their file does not have it."


def answers(group: ConditionGroup) -> tuple[Answer, ...]:
    """Return an answer to each question, or one line on what it would need."""
    made = tuple(answer(group) for answer in QUESTIONS)
    return tuple(map(_of_times_only, made)) if group.imported else made


def _of_times_only(answer: Answer) -> Answer:
    """Return the answer for imported timings, of which no other cell can be measured here."""
    if answer.is_answered or answer.evidence:
        return answer
    return answer._replace(text=TIMES_ONLY)
