"""Is a measured cell's communication right? Checks of bytes, exposed time and bandwidth."""

from collections.abc import Sequence

from hpml_jobs.checks.limits import BUSBW_LIMIT, EXPOSED_LIMIT
from hpml_jobs.checks.result import CheckResult, Level, judge
from hpml_jobs.core.cell import Device, Protocol
from hpml_jobs.core.formulas import bus_gb_per_s, expected_bytes, interpolated_s
from hpml_jobs.core.measurements import CollectiveKind, Message, Purpose
from hpml_jobs.core.record import Rank, Record
from hpml_jobs.core.strategies import BandwidthKind

OVERLAPPED = 1.05
"""Messages whose durations sum to more than this times their union overlap each other."""

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


def messages(record: Record) -> CheckResult | None:
    """Every rank counted exactly the bytes of gradients that its strategy must send."""
    cell = record.cell
    if cell.protocol is not Protocol.FULL or cell.gpus < 2 or record.model is None:
        return None
    if not cell.strategy.under_torchrun and record.communication is None:
        return None
    faults = [text for rank in record.ranks if (text := _message_fault(record, rank))]
    talk = record.communication
    sent = talk.bytes_of(Purpose.GRADIENTS) if talk else 0
    found = f"{sent:,} bytes of gradients per rank and epoch, counted at the calls"
    return judge(
        "messages",
        holds=not faults,
        found=faults[0] if faults else found,
        advice="bandwidths of this cell are wrong; this is a fault of hpml_jobs, please report it",
    )


def _message_fault(record: Record, rank: Rank) -> str | None:
    talk, epoch = rank.communication, rank.epoch("instrumented")
    if talk is None or epoch is None or record.model is None:
        return f"rank {rank.rank} counted no messages"
    for message in talk.messages:
        size = ELEMENT_BYTES.get(message.dtype)
        if size is not None and message.bytes != size * message.elements:
            return (
                f"rank {rank.rank}: a message of {message.elements:,} {message.dtype} elements "
                f"is {size * message.elements:,} bytes, not {message.bytes:,}"
            )
    gradients = [m for m in talk.messages if m.purpose == Purpose.GRADIENTS]
    passes = record.cell.strategy.traffic.gradients
    for kind in dict.fromkeys([*passes, *(m.kind for m in gradients)]):
        counted, expected_passes = _bytes(gradients, kind), passes.get(kind, 0)
        if expected_passes is None:  # a number of bytes that is not known beforehand
            continue
        expected = expected_bytes(epoch.iterations, record.model.gradient_bytes, expected_passes)
        if counted != expected:
            return (
                f"rank {rank.rank} counted {counted:,} bytes of gradients by {kind}, not "
                f"{expected:,} ({epoch.iterations} iterations x {record.model.gradient_bytes:,} "
                "bytes)"
            )
    return None


def _bytes(sent: Sequence[Message], kind: CollectiveKind) -> int:
    return sum(m.bytes * m.count for m in sent if m.kind == kind)


def exposed(record: Record) -> CheckResult | None:
    """Communication that nothing hides is a part of all communication, on every rank."""
    pairs = [
        (rank.phases.exposed_s, rank.communication.total_s)
        for rank in record.ranks
        if rank.phases and rank.communication
    ]
    if not pairs:
        return None
    part, whole = max(pairs, key=lambda pair: pair[0] - pair[1])
    return judge(
        "exposed",
        holds=0 <= part <= EXPOSED_LIMIT * whole,
        found=f"{part:.4g} s of communication are exposed, {whole:.4g} s there are in all",
        advice="something else than collectives is counted as communication; this is a fault of "
        "hpml_jobs, please report it",
    )


def profiler_messages(record: Record) -> CheckResult | None:
    """The profiler saw as many collectives, and as many bytes, as we counted.

    DataParallel's copies are not collectives to the profiler: not applied there. On a GPU it counts
    NCCL's kernels, and NCCL may make more or fewer of them than calls: that only warns.
    """
    traces = [rank.trace for rank in record.ranks if rank.trace]
    if not traces or not record.cell.strategy.under_torchrun:
        return None
    for trace in traces:
        pairs = [("collectives", trace.instruments_messages, trace.messages)]
        if trace.message_bytes is not None:
            pairs.append(("bytes", trace.instruments_bytes, trace.message_bytes))
        for what, ours, theirs in pairs:
            if ours != theirs:
                return judge(
                    "profiler-messages",
                    holds=False,
                    found=f"we counted {ours:,} {what}, the profiler {theirs:,}",
                    advice="messages were missed or counted twice; this is a fault of hpml_jobs, "
                    "please report it",
                    otherwise=Level.WARN if record.cell.device is Device.CUDA else Level.FAIL,
                )
    found = f"{traces[0].messages:,} collectives, as the profiler saw them"
    return judge("profiler-messages", holds=True, found=found, advice="")


def bus_bandwidth(record: Record) -> CheckResult | None:
    """Gradients travel at most 1.1 times as fast as the microbenchmark's fastest trials.

    At the messages' own sizes; where messages overlap each other (gloo), at its best size.
    """
    cell, probe = record.cell, record.probe
    talks = [rank.communication for rank in record.ranks if rank.communication]
    by_all_reduce = cell.strategy.traffic.bandwidth is BandwidthKind.BUS
    if probe is None or not talks or not by_all_reduce or cell.gpus < 2:
        return None
    talk = min(talks, key=lambda found: found.gradients_s)
    sent = [m for m in talk.messages if m.purpose == Purpose.GRADIENTS]
    total = talk.bytes_of(Purpose.GRADIENTS)
    best_s = {p.bytes: p.min_s for p in probe.points if p.bytes and p.min_s}
    if not best_s or not total or not talk.gradients_s:
        return None
    found = bus_gb_per_s(total, talk.gradients_s, cell.gpus)
    if sum(m.busy_s for m in sent) > OVERLAPPED * talk.gradients_s:
        peak, where = max(bus_gb_per_s(n, t, cell.gpus) for n, t in best_s.items()), "any size"
    else:
        alone_s = sum(m.count * _least_s(best_s, m.bytes) for m in sent)
        peak, where = bus_gb_per_s(total, alone_s, cell.gpus), "these sizes"
    return judge(
        "bus-bandwidth",
        holds=found <= BUSBW_LIMIT * peak,
        found=f"bus bandwidth {found:.3g} GB/s, the microbenchmark reached {peak:.3g} at {where} "
        f"(limit {BUSBW_LIMIT} x)",
        advice="the time of communication is too short: it missed part of the work",
    )


def _least_s(times_s: dict[int, float], size: int) -> float:
    """The time of a message; outside the sizes measured, at the nearest one's bandwidth."""
    inside = interpolated_s(times_s, size)
    if inside is not None:
        return inside
    nearest = min(times_s, key=lambda known: abs(known - size))
    return times_s[nearest] * size / nearest


CHECKS = (messages, exposed, profiler_messages, bus_bandwidth)
"""In the order they are told."""
