"""Checks that a correct measurement cannot fail: time, model, loss, replicas, bytes of messages."""

import math
from collections.abc import Iterator
from string import ascii_lowercase

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.check_result import Affected, Level, Tier
from hpml_jobs.core.formulas import closure, expected_bytes
from hpml_jobs.core.measurements import (
    CollectiveKind,
    Communication,
    Epoch,
    Purpose,
    Role,
)
from hpml_jobs.core.rank import Rank
from hpml_jobs.core.record import Model, Record
from hpml_jobs.core.strategies import Device, Sharded, Strategy
from hpml_jobs.core.text import Share, percent_text, whole_number
from hpml_jobs.core.workload import Loss
from hpml_jobs.results.checks.result import Observation, check

CLOSURE_LIMIT = {Device.CPU: Share(0.01), Device.CUDA: Share(0.02)}
LOSS_LIMIT = 3


@check("closure", Level.FAIL, Tier.NUMBER, Affected.SPLIT)
def unaccounted_time(record: Record) -> Observation | None:
    """The phases of the instrumented epoch do not add up to the epoch: time is counted twice or not
    at all, and Table 2 is wrong.

    Limit: {CLOSURE_LIMIT[cuda]} of the epoch with device=cuda, {CLOSURE_LIMIT[cpu]} with
    device=cpu, on every rank
    Fix: do not use Table 2 of this cell; {REPORT_BUG}
    """
    epochs = [rank.epoch(Role.INSTRUMENTED) for rank in record.ranks]
    gaps = [
        closure(epoch.epoch_s, epoch.phases.parts_s)
        for epoch in epochs
        if epoch and epoch.phases
    ]
    if not gaps:
        return None
    worst = max(gaps)
    limit = CLOSURE_LIMIT[record.cell.device]
    text = f"the phases miss the epoch by {percent_text(worst)} (limit {limit})"
    return Observation(worst <= limit, text)


@check("parameters", Level.FAIL, Tier.NUMBER)
def other_model(record: Record) -> Observation | None:
    """The trained model has another number of parameters than the workload claims: another model
    than the one named was trained.

    Limit: exactly workload.parameters
    Fix: correct workload.model= or workload.parameters=
    """
    claimed = record.cell.workload.parameters
    if record.model is None or claimed is None:
        return None
    trained = record.model.parameters
    return Observation(
        trained == claimed,
        f"{record.model.name} has {trained:,} parameters, {record.cell.workload.name} says "
        f"{claimed:,}",
    )


@check("loss", Level.FAIL, Tier.NUMBER, Affected.LEARNING)
def impossible_loss(record: Record) -> Observation | None:
    """The mean loss is one that such a model cannot have (failure), or training diverged (warning):
    the times remain valid, loss and accuracy do not.

    Limit: from (1 - accuracy) x ln 2 to {LOSS_LIMIT} x ln(classes); accuracy from 0 to 1
    Fix: if training diverged, lower workload.lr=; else do not use loss and accuracy; {REPORT_BUG}
    """
    workload = record.cell.workload
    epochs = [
        epoch
        for rank in record.ranks
        for epoch in rank.epochs
        if epoch.role != Role.UNSYNCED
    ]
    for epoch in epochs:
        if not 0 <= (epoch.accuracy or 0) <= 1:
            text = f"accuracy is {epoch.accuracy:.4g} in the {epoch.role} epoch"
            return Observation(False, text)
    losses = [(epoch, epoch.loss) for epoch in epochs if epoch.loss is not None]
    if workload.loss != Loss.CROSS_ENTROPY or workload.targets < 2 or not losses:
        return None
    for epoch, loss in losses:
        share = 1.0 if epoch.accuracy is None else epoch.accuracy
        least = (1 - share) * math.log(2)
        if loss < least - 1e-6:
            return Observation(
                False,
                f"loss is {loss:.4g} at accuracy {percent_text(share)} in the {epoch.role} "
                f"epoch (at least {least:.4g}), so it is not a mean over samples",
            )
    worst = max(loss for _, loss in losses)
    limit = LOSS_LIMIT * math.log(workload.targets)
    return Observation(
        worst <= limit,
        f"loss is {worst:.4g} at most (limit {limit:.4g}, {LOSS_LIMIT} x ln {workload.targets})",
        "training diverged, so use the times only and lower workload.lr=",
        Level.WARN,
    )


_ALONE = (
    "do not use this cell; no exchange between ranks of the script was seen: let it average "
    "gradients, e.g. by DistributedDataParallel"
)
_SELDOM = (
    "as it should be if the script averages parameters only sometimes (local SGD); else let it "
    "exchange all gradients"
)
_OWN_START = (
    "do not use this cell; your model starts with other parameters on each rank: in "
    "{model} draw random numbers from torch only, without a seed of your own"
)
_OWN_CHANGE = (
    "do not use this cell; look for parameters that {model} changes outside of the optimizer, for "
    "example in forward(); if there are none, report it as a fault of hpml_jobs"
)
"""Remedies for replicas of the user's own model that differ."""


@check("replicas", Level.FAIL, Tier.NUMBER)
def replicas_differ(record: Record) -> Observation | None:
    """Ranks end training with different parameters: gradients were not synchronized, or a model of
    your own differs between ranks, so this was not data-parallel training.

    Limit: the same parameters on every rank, by hash
    Fix: do not use this cell; {REPORT_BUG}
    """
    # under fsdp there is one model, gathered for its hash
    hashes = {rank.parameters_hash for rank in record.ranks}
    ranks = len(record.ranks)
    shards = record.cell.strategy.traffic.shards
    if shards is Sharded.PARAMETERS or ranks < 2 or "" in hashes:
        return None
    if len(hashes) == 1:
        return Observation(True, f"the same parameters on all {ranks} ranks")
    text = f"{len(hashes)} different replicas on {ranks} ranks"
    model = record.cell.workload.model
    if record.cell.script and record.communication is None:
        return Observation(False, text, _ALONE)
    if record.cell.script:
        return Observation(False, text, _SELDOM, Level.WARN)
    if ":" not in model:
        return Observation(False, text)
    starts = {rank.initial_hash for rank in record.ranks} - {None}
    # ddp begins with rank 0's parameters on every rank, whatever the model began with.
    began_different = len(starts) > 1 and record.cell.strategy is not Strategy.DDP
    remedy = _OWN_START if began_different else _OWN_CHANGE
    return Observation(False, text, remedy.format(model=model))


@check("messages", Level.FAIL, Tier.NUMBER, Affected.BANDWIDTH)
def wrong_message_bytes(record: Record) -> Observation | None:
    """A rank counted other bytes of gradients, or of sharded parameters, than its strategy must
    send: the bandwidths of this cell are wrong. Under fsdp and zero1 the parameters count too.

    Limit: exactly iterations x bytes, by each collective of the strategy
    Fix: do not use Table 3 of this cell; {REPORT_BUG}
    """
    cell = record.cell
    model = record.model
    if cell.protocol is not Protocol.FULL or cell.gpus < 2 or model is None:
        return None
    if not cell.strategy.under_torchrun and record.communication is None:
        return None
    for rank in record.ranks:
        if fault := _message_fault(cell.strategy, model, rank):
            return Observation(False, fault)
    messages = record.communication
    sent = messages.bytes_of(Purpose.GRADIENTS) if messages else 0
    counted = f"{sent:,} bytes of gradients per rank and epoch, counted at the calls"
    return Observation(True, counted)


def _message_fault(strategy: Strategy, model: Model, rank: Rank) -> str | None:
    communication = rank.communication
    epoch = rank.epoch(Role.INSTRUMENTED)
    if communication is None or epoch is None:
        return f"rank {rank.rank} counted no messages"
    for message in communication.messages:
        bits = whole_number(message.dtype.lstrip(ascii_lowercase))  # of float32: 32
        size = (bits or 0) // 8 * message.elements
        if size and message.bytes != size:
            return (
                f"rank {rank.rank}: a message of {message.elements:,} {message.dtype} elements "
                f"is {size:,} bytes, not {message.bytes:,}"
            )
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
