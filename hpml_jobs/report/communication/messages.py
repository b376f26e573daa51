"""What each iteration sends, and how fast: full tables of messages (lab Q6) and of bandwidths."""

from collections.abc import Iterator
from typing import Annotated, NamedTuple

from hpml_jobs.checks.result import Affected
from hpml_jobs.core.strategies import BandwidthKind
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.answers import Answer, unanswered
from hpml_jobs.report.frame.builder import (
    UNMEASURED,
    Number,
    Shown,
    TableText,
    columns_of,
    filled,
    item_table,
    left_out,
    line_table,
    rest,
)
from hpml_jobs.report.frame.figures import PEAK_FROM_BYTES
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import count, gb_per_s, percent, rounded
from hpml_jobs.report.frame.rows import Row, Setup
from hpml_jobs.report.frame.table import Table

MESSAGES = (
    "Counted at each call in the instrumented epoch, on the rank that waits least, in one run per "
    "strategy and number of {units} (the batch changes the number of iterations, not what each "
    "sends). Bytes of one message, messages per iteration, bytes per iteration."
)
QUESTION = "Are gradients the only messages (lab Q6)? {answers}."


def _times(value: float) -> str:
    return count(round(value)) if abs(value - round(value)) < 1e-9 else f"{value:.2f}"


class Sent(NamedTuple):
    """Messages of one kind and size of a row; the last two are per iteration."""

    gpus: int
    nodes: int
    strategy: str
    treatment: str
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
        columns_of(Sent),
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
        iterations = record.instrumented_iterations
        if iterations and record.communication and record.communication.messages:
            sent_messages = sorted(
                record.communication.messages, key=lambda m: (m.purpose, -m.bytes, m.kind)
            )
            for message in sent_messages:
                times = message.count / iterations
                yield filled(
                    Sent,
                    message,
                    gpus=row.gpus,
                    nodes=row.nodes,
                    strategy=row.strategy.value,
                    treatment=row.treatment,
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
        remedy = "" if group.a_cell.script else " (protocol=full)"
        return unanswered(*Q6, f"messages are counted in the instrumented epoch{remedy}")
    text = "; ".join(texts)
    return Answer(*Q6, f"Are gradients the only messages? {text}.", "Table Messages")


BANDWIDTH = (
    "Gradients only. Bytes: of one rank in the epoch, counted at each collective, and expected of "
    "the strategy (dp: unknown). GB/s (1e9 bytes): algbw = bytes / time; busbw = "
    "2(N-1)/N x algbw; both on the rank with the least time, whose messages wait least for other "
    "ranks. % of peak: busbw / best busbw of the microbenchmark from 64 MiB. % of sizes: time of "
    "the same messages on idle devices / time here, on the same rank. % of link: busbw / specified"
    " speed of the link. Delayed: trials of the microbenchmark that waited for the scheduler."
)


class BandwidthLine(NamedTuple):
    """Bytes and bandwidths of a row's gradients, 1e9 bytes/s; shares of 1."""

    sent_bytes: Annotated[Number, Shown("counted", rounded, "gradient bytes of a rank")]
    expected_bytes: Annotated[Number, Shown("expected", rounded, "gradient bytes of a rank")]
    algorithm_gb_per_s: Annotated[Number, Shown("algbw", gb_per_s, "GB/s")]
    bus_gb_per_s: Annotated[Number, Shown("busbw", gb_per_s, "GB/s")]
    nominal_gb_per_s: Annotated[Number, Shown("nominal", gb_per_s, "GB/s")]
    root_wire_gb_per_s: Annotated[Number, Shown("root's wire", gb_per_s, "GB/s")]
    bus_plain_gb_per_s: Number
    of_peak: Annotated[Number, Shown("peak", percent, "% of")]
    of_same_sizes: Annotated[Number, Shown("sizes", percent, "% of")]
    of_link: Annotated[Number, Shown("link", percent, "% of")]
    delayed: Annotated[Number, Shown("delayed, %", percent)]


OF_KIND = {
    "nominal_gb_per_s": BandwidthKind.NOMINAL,
    "root_wire_gb_per_s": BandwidthKind.ROOT_WIRE,
}
"""Columns that are there only if a strategy has such a bandwidth."""


def bandwidth(group: ConditionGroup) -> Table | None:
    """Return bytes and bandwidths of the gradients, and the share of what is possible."""
    rows = [row for row in group.timed if row.bandwidth]
    if not rows:
        return None
    text = TableText(
        "bandwidth",
        "Bandwidth",
        "instrumented epoch",
        (BANDWIDTH, captions.runs(rows)),
        on_screen=False,
        affected=Affected.BANDWIDTH,
    )
    kinds = {row.strategy.traffic.bandwidth for row in rows}
    absent = [name for name, kind in OF_KIND.items() if kind not in kinds]
    heads = columns_of(BandwidthLine, without=absent)
    lines = [(row, filled(BandwidthLine, row.bandwidth)) for row in rows]
    missing = rest((row for row in group.rows if row.gpus > 1), rows)
    notes = _limits(group, rows) + left_out(group, UNMEASURED, missing)
    return line_table(group, text, lines, heads, notes)


def _limits(group: ConditionGroup, rows: list[Row]) -> list[str]:
    """Return notes on percentages whose reference differs from the caption's."""
    notes = []
    small = [row for row in rows if 0 < (row.figures.peak_bytes or 0) < PEAK_FROM_BYTES]
    for size in sorted({_peak_bytes(row) for row in small}):
        rows_of_size = [row for row in small if _peak_bytes(row) == size]
        why = f"the peak is of the largest message measured, {count(size)} bytes (below 64 MiB)"
        notes += left_out(group, why, rows_of_size)
    if rows and not any(row.figures.link_gb_per_s for row in rows):
        notes.append("link: neither NVML nor cluster.link_gb_per_s says its speed")
    return notes


def _peak_bytes(row: Row) -> int:
    return round(row.figures.peak_bytes or 0)
