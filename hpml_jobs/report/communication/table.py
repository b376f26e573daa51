"""Communication in the instrumented epoch: the table, and the sheet of messages (lab Q6)."""

from collections.abc import Iterator
from itertools import chain
from typing import Annotated, NamedTuple, Self

from hpml_jobs.core import formulas
from hpml_jobs.core.check_result import Affected
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.numbers import percent, seconds
from hpml_jobs.report.frame.table import (
    UNMEASURED,
    Column,
    Number,
    Sheet,
    Table,
    TableText,
    columns_of,
    filled,
    left_out,
    line_table,
    rest,
)
from hpml_jobs.results.cells import Setup
from hpml_jobs.results.figures import Figures
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row

COMMUNICATION = (
    "Of the rank that waits least, the first of equal ones. Total: seconds in which any "
    "collective is active. Not hidden: the part that no computation hides; forward: what of it is "
    "inside forward (ddp: buffers). Overlap: total - not hidden. Its parts: exchange, the least of "
    "any rank, summed over collectives (over iterations before version 0.9.0: at most this), and "
    "waiting for later ranks. All-reduces: net is the least of any rank, late the waiting beyond "
    "it. Rank 0: its time in broadcasts, gathers and scatters; in gathers with waiting for late "
    "ranks. Pack: flattening, copying back and averaging by hand, after backward. Not hidden + "
    "pack is Comm of Table 2. Cost: the timed epoch - the same epoch without gradient exchange, "
    "contention and copies included; +- its resolution, by the quartiles of the steps of both "
    "epochs. By subtraction: the lab's estimate, Table 2r. The columns are different quantities."
)


class CommunicationLine(NamedTuple):
    """The seconds of communication of a row, by every method."""

    comm_total_s: Annotated[Number, Column("total", seconds, "collectives, s")]
    comm_exposed_s: Annotated[Number, Column("not hidden", seconds, "collectives, s")]
    comm_forward_s: Annotated[Number, Column("forward", seconds, "collectives, s")]
    overlap_s: Annotated[Number, Column("overlap", seconds, "collectives, s")]
    overlap: Annotated[Number, Column("overlap %", percent)]
    exchange_s: Annotated[Number, Column("exchange", seconds, "parts of it, s")]
    waiting_s: Annotated[Number, Column("waiting", seconds, "parts of it, s")]
    skew_s: Annotated[Number, Column("late", seconds, "all-reduces, s")]
    net_s: Annotated[Number, Column("net", seconds, "all-reduces, s")]
    rooted_s: Annotated[Number, Column("rank 0, s", seconds)]
    pack_s: Annotated[Number, Column("pack, s", seconds)]
    comm_cost_s: Number
    comm_cost_resolution_s: Number
    comm_s: Number
    cost: Annotated[
        str | None, Column("cost", str, "other views, s", on_page_only=True)
    ]
    comm_residual_s: Annotated[
        Number, Column("by subtraction", seconds, "other views, s")
    ]

    @classmethod
    def of(cls, row: Row) -> Self:
        """Return the line of a row."""
        figures = row.figures
        total_s = figures.comm_total_s
        exposed_s = figures.comm_exposed_s
        overlap_s = None
        if total_s is not None and exposed_s is not None:
            overlap_s = formulas.overlap_s(total_s, exposed_s)
            overlap_s = round(overlap_s, 12)  # else 3e-17 s where both are equal
        return filled(
            cls,
            figures,
            overlap_s=overlap_s,
            overlap=overlap_s / total_s if overlap_s is not None and total_s else None,
            cost=_cost(figures),
            comm_residual_s=row.residual.comm_s if row.residual else None,
        )


def communication(group: ConditionGroup) -> Table | None:
    """Return the table of communication times by every method, side by side."""
    parallel = [row for row in group.rows if row.gpus > 1]
    rows = [row for row in parallel if row.figures.comm_total_s is not None]
    if not rows:
        return None
    text = TableText(
        "communication",
        "Communication",
        "instrumented epoch",
        (COMMUNICATION, captions.runs(rows)),
        affected=Affected.SPLIT,
    )
    notes = left_out(group, UNMEASURED, rest(parallel, rows))
    lines = [(row, CommunicationLine.of(row)) for row in rows]
    return line_table(group, text, lines, columns_of(CommunicationLine), notes)


def _cost(figures: Figures) -> str | None:
    """Return the cost with its resolution; a cost within the resolution is not resolved."""
    cost_s = figures.comm_cost_s
    resolution_s = figures.comm_cost_resolution_s
    if cost_s is None:
        return None
    if resolution_s is None:
        return seconds(cost_s)
    if abs(cost_s) <= resolution_s:
        return f"not resolved (±{seconds(resolution_s)})"
    return f"{seconds(cost_s)} ±{seconds(resolution_s)}"


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
        if (sent_messages := list(_sent(row)))
    }


def _sent(row: Row) -> Iterator[SentMessages]:
    """Yield the messages of a row's first run that has them, the largest of each purpose first."""
    for record in row.records:
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
