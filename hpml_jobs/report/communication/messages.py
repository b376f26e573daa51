"""What each iteration sends, and how fast: sheets of messages (lab Q6) and of bandwidths."""

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from hpml_jobs.core.place import Setup
from hpml_jobs.report.frame.builder import Number, filled, row_sheet
from hpml_jobs.report.frame.table import Sheet
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


class BandwidthLine(NamedTuple):
    """Bytes and bandwidths of a row's gradients, 1e9 bytes/s; shares of 1."""

    sent_bytes: Number
    expected_bytes: Number
    algorithm_gb_per_s: Number
    bus_gb_per_s: Number
    nominal_gb_per_s: Number
    root_wire_gb_per_s: Number
    bus_plain_gb_per_s: Number
    of_peak: Number
    of_same_sizes: Number
    of_link: Number
    delayed: Number


def bandwidth(group: ConditionGroup) -> Sheet | None:
    """Return bytes and bandwidths of the gradients, and the share of what is possible."""
    rows = [row for row in group.timed if row.bandwidth]
    lines = [(row, filled(BandwidthLine, row.bandwidth)) for row in rows]
    return row_sheet(group, BandwidthLine._fields, lines) if lines else None
