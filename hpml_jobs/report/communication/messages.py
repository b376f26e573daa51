"""What each iteration sends: the sheet of messages (lab Q6)."""

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from hpml_jobs.core.place import Setup
from hpml_jobs.report.frame.table import Sheet, filled
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row


class SentMessages(NamedTuple):
    """Messages of one kind and size of a row; the last two are per iteration."""

    gpus: int
    nodes: int
    strategy: str
    treatment: str
    purpose: str
    kind: str
    dtype: str
    bytes: int
    per_iteration: float
    bytes_per_iteration: float


def messages(group: ConditionGroup) -> Sheet | None:
    """Return every kind of message; None if none was counted."""
    sent = tuple(chain.from_iterable(messages_by_setup(group).values()))
    return Sheet(columns=SentMessages._fields, rows=sent) if sent else None


def messages_by_setup(group: ConditionGroup) -> dict[Setup, list[SentMessages]]:
    """Return the messages of each row that has some, by its setup."""
    return {
        row.setup: sent_messages
        for row in group.timed
        if (sent_messages := list(_sent(group, row)))
    }


def _sent(group: ConditionGroup, row: Row) -> Iterator[SentMessages]:
    """Yield the messages of a row's first run that has them, the largest of each purpose first."""
    for record in group.records(row):
        iterations = record.instrumented_iterations
        if iterations and record.communication and record.communication.messages:
            sent_messages = sorted(
                record.communication.messages,
                key=lambda m: (m.purpose, -m.bytes, m.kind),
            )
            for message in sent_messages:
                times = message.count / iterations
                yield filled(
                    SentMessages,
                    message,
                    row,
                    strategy=row.strategy.value,
                    per_iteration=times,
                    bytes_per_iteration=message.bytes * times,
                )
            return
