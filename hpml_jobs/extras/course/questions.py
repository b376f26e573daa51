"""The questions of the lab, answered from the numbers of a group."""

from collections.abc import Callable

from hpml_jobs.extras.course.communication import (
    bandwidths,
    communication_seconds,
    other_messages,
)
from hpml_jobs.extras.course.quality import large_batch, remedies
from hpml_jobs.extras.course.replicas import gradients_enough, why_set_epoch
from hpml_jobs.extras.course.times import epoch_by_batch, speedups
from hpml_jobs.report.page.formats import Answer, Answers, Item
from hpml_jobs.report.report import ReportGroup
from hpml_jobs.results.groups import ConditionGroup

QUESTIONS: tuple[Callable[[ConditionGroup], Answer], ...] = (
    epoch_by_batch,
    speedups,
    communication_seconds,
    bandwidths,
    large_batch,
    remedies,
    why_set_epoch,
    other_messages,
    gradients_enough,
)
"""The questions in their order."""

TIMES_ONLY = "Not known: the timings were imported, and their file does not have it."


def answers(group: ConditionGroup) -> tuple[Answer, ...]:
    """Return an answer to each question, or one line on what it would need."""
    answers_of_group = tuple(answer(group) for answer in QUESTIONS)
    if group.imported:
        return tuple(map(_of_times_only, answers_of_group))
    return answers_of_group


def _of_times_only(answer: Answer) -> Answer:
    """Return the answer for imported timings, of which no other cell can be measured here."""
    if answer.is_answered or answer.evidence:
        return answer
    return answer._replace(text=TIMES_ONLY)


def section(group: ReportGroup) -> tuple[str, tuple[Item, ...], str]:
    """Return the section of a page: its title, its items, and what is in it."""
    questions = answers(group.source)
    answered = sum(answer.is_answered for answer in questions)
    numbers = f"{questions[0].question} to {questions[-1].question}"
    summary = f"{numbers}: {answered} of {len(questions)} are answered by this study"
    return "Questions of the lab", (Answers(questions),), summary
