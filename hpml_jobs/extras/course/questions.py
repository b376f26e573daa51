"""The questions of the lab, answered from the numbers of the groups of a report."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from hpml_jobs.extras.course.communication import (
    bandwidths,
    communication_seconds,
    other_messages,
)
from hpml_jobs.extras.course.quality import large_batch, remedies
from hpml_jobs.extras.course.replicas import gradients_enough, why_set_epoch
from hpml_jobs.extras.course.times import epoch_by_batch, speedups
from hpml_jobs.extras.course.words import STATUS
from hpml_jobs.report.page.formats import Answer, Answers, Item
from hpml_jobs.report.report import Report, ReportGroup
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


def section(report: Report) -> tuple[str, tuple[Item, ...], str]:
    """Return the section of a page: its title, its items, and what is in it."""
    questions = tuple(chain.from_iterable(_by_question(report)))
    answered = {answer.question for answer in questions if answer.is_answered}
    numbers = f"{questions[0].question} to {questions[-1].question}"
    summary = (
        f"{numbers}: {len(answered)} of {len(QUESTIONS)} are measured by this study"
    )
    return "Questions of the lab", (Answers(questions),), summary


def _by_question(report: Report) -> Iterator[tuple[Answer, ...]]:
    """Yield the answers to each question, first that of the group that answers most questions.

    Beside an answer of one group, the empty ones of others are left out. Without any, one is kept:
    what a group measured in part, or else what is needed.
    """
    of_groups = [_of_group(report, group) for group in report.first_screen.groups]
    of_groups.sort(key=_number_answered, reverse=True)
    for of_question in zip(*of_groups, strict=True):
        answered = tuple(answer for answer in of_question if answer.is_answered)
        yield answered or (max(of_question, key=_has_evidence),)


def _has_evidence(answer: Answer) -> bool:
    return bool(answer.evidence)


def _number_answered(of_group: Sequence[Answer]) -> int:
    return sum(answer.is_answered for answer in of_group)


def _of_group(report: Report, group: ReportGroup) -> tuple[Answer, ...]:
    """Return the answers of a group, those from its cells with what differs in their titles."""
    status = f"{STATUS} {report.study}"
    of_group = tuple(
        answer._replace(text=answer.text.replace(STATUS, status))
        for answer in answers(group.source)
    )
    if not report.several:
        return of_group
    name = f"group {group.number}: {group.differences or group.title}"
    return tuple(
        answer._replace(title=f"{answer.title} ({name})") if answer.evidence else answer
        for answer in of_group
    )
