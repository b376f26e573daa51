"""Full table of the messages of an iteration, and whether gradients are the only ones (lab Q6)."""

from collections.abc import Iterator
from operator import attrgetter
from typing import Annotated, NamedTuple

from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.answers import Answer, unanswered
from hpml_jobs.report.frame.builder import (
    Columns,
    Shown,
    TableText,
    columns_of,
    filled,
    item_table,
    place_columns,
)
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import count, rounded
from hpml_jobs.report.frame.rows import Row, Setup
from hpml_jobs.report.frame.table import Table

MESSAGES = (
    "Counted at each call in the instrumented epoch, on the rank that waits least, in one run per "
    "strategy and number of {units} (the batch changes the number of iterations, not what each "
    "sends). Bytes of one message, messages per iteration, bytes per iteration."
)
PLACE = ("gpus", "nodes", "strategy", "treatment")
QUESTION = "Are gradients the only messages (lab Q6)? {answers}."


def _times(value: float) -> str:
    return count(round(value)) if abs(value - round(value)) < 1e-9 else f"{value:.2f}"


class Sent(NamedTuple):
    """Messages of one kind and size of a row; the last two are per iteration."""

    setup: Setup
    purpose: Annotated[str, Shown("purpose", words=True)]
    kind: Annotated[str, Shown("kind", words=True)]
    dtype: Annotated[str, Shown("dtype", words=True)]
    bytes: Annotated[int, Shown("bytes of one", count)]
    per_iteration: Annotated[float, Shown("messages", _times, "per iteration")]
    bytes_per_iteration: Annotated[float, Shown("bytes", rounded, "per iteration")]


def messages(group: ConditionGroup) -> Table | None:
    """Return every kind of message; None if none was counted."""
    messages_by_setup = _messages_by_setup(group)
    if not messages_by_setup:
        return None
    caption = (
        MESSAGES.format(units=captions.units(group.device)),
        QUESTION.format(answers="; ".join(gradients_only(group))),
    )
    return item_table(
        [group],
        TableText("messages", "Messages", "instrumented epoch", caption, on_screen=False),
        (
            (captions.full_label(setup, group.device), sent)
            for setup, messages in messages_by_setup.items()
            for sent in messages
        ),
        (
            Columns("", place_columns(attrgetter("setup"), PLACE)),
            *columns_of(Sent, without=["setup"]),
        ),
    )


def _messages_by_setup(group: ConditionGroup) -> dict[Setup, list[Sent]]:
    return {
        row.setup: sent_messages
        for row in group.timed
        if (sent_messages := list(_sent(group, row)))
    }


def gradients_only(group: ConditionGroup) -> list[str]:
    """Return for each strategy whether it sends gradients only, with the bytes of the others."""
    answers = (_answer(setup, sent) for setup, sent in _messages_by_setup(group).items())
    return list(dict.fromkeys(answers))


def _sent(group: ConditionGroup, row: Row) -> Iterator[Sent]:
    """Yield the messages of a row's first run that has them, the largest of each purpose first."""
    for record in group.records(row):
        if record.communication and record.communication.messages:
            sent_messages = sorted(
                record.communication.messages, key=lambda m: (m.purpose, -m.bytes, m.kind)
            )
            iterations = record.ranks[0].timed.iterations
            for message in sent_messages:
                times = message.count / iterations
                yield filled(
                    Sent,
                    message,
                    setup=row.setup,
                    per_iteration=times,
                    bytes_per_iteration=message.bytes * times,
                )
            return


def _answer(setup: Setup, sent_messages: list[Sent]) -> str:
    """Return `ddp: no, every iteration sends 104,616 B of gradients and 904 B of buffers`."""
    volumes: dict[str, float] = {}
    for sent in sent_messages:
        volumes[sent.purpose] = volumes.get(sent.purpose, 0) + sent.bytes_per_iteration
    gradients = volumes.pop("gradients", 0)
    name = setup.strategy.value + (f" ({setup.treatment})" if setup.treatment else "")
    if not volumes:
        return f"{name}: yes"
    others = " and ".join(f"{count(round(size))} B of {what}" for what, size in volumes.items())
    return (
        f"{name}: no, every iteration sends {count(round(gradients))} B of gradients and {others}"
    )


Q6 = ("Q6", "Messages besides gradients")


def other_messages(group: ConditionGroup) -> Answer:
    """Answer Q6: the messages of an iteration that are not gradients."""
    texts = gradients_only(group)
    if not texts:
        return unanswered(*Q6, "messages are counted in the instrumented epoch (protocol=full)")
    text = "; ".join(texts)
    return Answer(*Q6, f"Are gradients the only messages? {text}.", "Table Messages")
