"""Full table of the messages of an iteration, and whether gradients are the only ones (lab Q6)."""

from collections.abc import Iterable
from typing import NamedTuple

from hpml_jobs.core.measurements import Message
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.rows import Row, Setup
from hpml_jobs.report.table import Table
from hpml_jobs.report.tables.builder import Columns, TableText, column, item_table, place_columns
from hpml_jobs.report.text import captions
from hpml_jobs.report.text.numbers import count

MESSAGES = (
    "Counted at each call in E2, on the rank that waits least, in one run per strategy and "
    "number of {units} (the batch changes the number of iterations, not what each sends). Bytes "
    "of one message, messages per iteration, bytes per iteration."
)
QUESTION = "Are gradients the only messages (lab Q6)? {answers}."


class Sent(NamedTuple):
    """Messages of one kind and size, and the epoch they were counted in."""

    setup: Setup
    message: Message
    iterations: int

    @property
    def per_iteration(self) -> float:
        """The number of messages per iteration."""
        return self.message.count / self.iterations

    @property
    def bytes_per_iteration(self) -> float:
        """The bytes of all these messages per iteration."""
        return self.message.bytes * self.per_iteration


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
        TableText("messages", "Messages", "E2", caption, on_screen=False),
        (
            (captions.full_label(setup, group.device), sent)
            for setup, messages in messages_by_setup.items()
            for sent in messages
        ),
        _HEADS,
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


def _sent(group: ConditionGroup, row: Row) -> Iterable[Sent]:
    """Return the messages of a row's first run that has them, the largest of each purpose first."""
    for record in group.records(row):
        if record.communication and record.communication.messages:
            sent_messages = sorted(
                record.communication.messages, key=lambda m: (m.purpose, -m.bytes, m.kind)
            )
            iterations = record.ranks[0].timed.iterations
            return [Sent(row.setup, message, iterations) for message in sent_messages]
    return []


def _answer(setup: Setup, sent_messages: list[Sent]) -> str:
    """Return `ddp: no, every iteration sends 104,616 B of gradients and 904 B of buffers`."""
    volumes: dict[str, float] = {}
    for sent in sent_messages:
        purpose = sent.message.purpose
        volumes[purpose] = volumes.get(purpose, 0) + sent.bytes_per_iteration
    gradients = volumes.pop("gradients", 0)
    name = setup.strategy.value + (f" ({setup.treatment})" if setup.treatment else "")
    if not volumes:
        return f"{name}: yes"
    others = " and ".join(f"{count(round(size))} B of {what}" for what, size in volumes.items())
    return (
        f"{name}: no, every iteration sends {count(round(gradients))} B of gradients and {others}"
    )


def _times(value: float) -> str:
    return count(round(value)) if abs(value - round(value)) < 1e-9 else f"{value:.2f}"


def _bytes(value: float) -> str:
    return count(round(value))


_HEADS: tuple[Columns[Sent], ...] = (
    Columns("", place_columns(lambda sent: sent.setup, ["gpus", "nodes", "strategy", "treatment"])),
    Columns("purpose", (column("purpose", "", lambda sent: sent.message.purpose),), words=True),
    Columns("kind", (column("kind", "", lambda sent: sent.message.kind),), words=True),
    Columns("dtype", (column("dtype", "", lambda sent: sent.message.dtype),), words=True),
    Columns("bytes of one", (column("bytes", "", lambda sent: sent.message.bytes, count),)),
    Columns(
        "per iteration",
        (
            column("per_iteration", "messages", lambda sent: sent.per_iteration, _times),
            column("bytes_per_iteration", "bytes", lambda sent: sent.bytes_per_iteration, _bytes),
        ),
    ),
)
