"""Is a measured cell's communication right? The check of bytes."""

from collections.abc import Iterator

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.check_result import Affected, Level, Tier
from hpml_jobs.core.formulas import expected_bytes
from hpml_jobs.core.measurements import (
    CollectiveKind,
    Communication,
    Epoch,
    Purpose,
    Role,
)
from hpml_jobs.core.rank import Rank
from hpml_jobs.core.record import Model, Record
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.results.checks.result import Observation, check

ELEMENT_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
"""Bytes of one element by torch's name of the dtype."""


@check("messages", Level.FAIL, Tier.NUMBER, Affected.BANDWIDTH)
def wrong_message_bytes(record: Record) -> Observation | None:
    """A rank counted other bytes of gradients, or of sharded parameters, than its strategy must
    send: the bandwidths of this cell are wrong. Under fsdp and zero1 the parameters count too.

    Limit: exactly iterations x bytes, by each collective of the strategy
    Fix: do not use Table 3 of this cell; {REPORT_BUG}
    """
    cell = record.cell
    if cell.protocol is not Protocol.FULL or cell.gpus < 2 or record.model is None:
        return None
    if not cell.strategy.under_torchrun and record.communication is None:
        return None
    faults = [text for rank in record.ranks if (text := _message_fault(record, rank))]
    if faults:
        return Observation(False, faults[0])
    messages = record.communication
    sent = messages.bytes_of(Purpose.GRADIENTS) if messages else 0
    counted = f"{sent:,} bytes of gradients per rank and epoch, counted at the calls"
    return Observation(True, counted)


def _message_fault(record: Record, rank: Rank) -> str | None:
    communication = rank.communication
    epoch = rank.epoch(Role.INSTRUMENTED)
    if communication is None or epoch is None or record.model is None:
        return f"rank {rank.rank} counted no messages"
    for message in communication.messages:
        size = ELEMENT_BYTES.get(message.dtype)
        if size is not None and message.bytes != size * message.elements:
            return (
                f"rank {rank.rank}: a message of {message.elements:,} {message.dtype} elements "
                f"is {size * message.elements:,} bytes, not {message.bytes:,}"
            )
    strategy = record.cell.strategy
    model = record.model
    volumes = _expected(strategy, model, communication, epoch)
    for purpose, kind, expected, how in volumes:
        messages = [m for m in communication.sent(purpose) if m.kind == kind]
        counted = sum(message.bytes * message.count for message in messages)
        if counted != expected:
            return (
                f"rank {rank.rank} counted {counted:,} bytes of {purpose} by {kind}, not "
                f"{expected:,} ({how} bytes)"
            )
    return None


def _expected(
    strategy: Strategy, model: Model, communication: Communication, epoch: Epoch
) -> Iterator[tuple[Purpose, CollectiveKind, int, str]]:
    """Yield the bytes that a rank must send by each kind of collective, and how they follow."""
    passes = strategy.traffic.gradients
    size = model.gradient_bytes
    sent = [message.kind for message in communication.sent(Purpose.GRADIENTS)]
    for kind in dict.fromkeys([*passes, *sent]):
        of_kind = passes.get(kind, 0)
        if of_kind is not None:  # None: a number of bytes that is not known beforehand
            expected = expected_bytes(epoch.iterations, size, of_kind)
            how = f"{epoch.iterations} iterations x {size:,}"
            yield Purpose.GRADIENTS, kind, expected, how
    for volume in model.expected:
        times = f"{epoch.iterations} iterations"
        if volume.each_batch:
            times = f"{epoch.batches} batches"
        how = f"{times} x {volume.bytes:,}"
        yield volume.purpose, volume.kind, volume.of_epoch(epoch), how
