"""Do the instruments and torch.profiler measure the same times?"""

from collections.abc import Iterator
from typing import NamedTuple

from hpml_jobs.checks.cpus import busiest_host
from hpml_jobs.checks.disturbance import DISTURBED
from hpml_jobs.checks.result import Observation, check
from hpml_jobs.core.check_result import Affected, Level, Tier
from hpml_jobs.core.disturbance import outside_causes
from hpml_jobs.core.measurements import (
    CollectiveKind,
    ProfiledCollective,
    ProfilerSummary,
    Purpose,
    Step,
)
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.text import Share, percent_text

PROFILER_LIMIT = Share(0.05)
LAUNCH_MS = {Device.CPU: 0.5, Device.CUDA: 0.05}
"""Of one message: entering the library from Python and waking up after it; on a GPU, where launches
are queued, the events around it and the way to another stream and back."""
PHASES_LIMIT = Share(0.05)
COPIES_LIMIT = Share(0.05)


class ProfilerGap(NamedTuple):
    """A time of communication by the profiler and by the instruments, and what may differ.

    On a GPU it is that of one kind of collective, on the CPU of all together.
    """

    what: str
    seconds: float
    instruments_s: float
    messages: int
    device: Device

    @property
    def gap_s(self) -> float:
        """The difference."""
        return abs(self.instruments_s - self.seconds)

    @property
    def allowed_s(self) -> float:
        """The allowed difference: 5 %, or the launches of the messages."""
        return max(
            PROFILER_LIMIT * self.seconds, 1e-3 * LAUNCH_MS[self.device] * self.messages
        )


def communication_gaps(trace: ProfilerSummary, device: Device) -> Iterator[ProfilerGap]:
    """Yield the times of communication to compare.

    Not those of broadcasts on a GPU: around NCCL's kernel DDP copies every buffer, which our time
    contains and the kernel's does not.
    """
    if trace.collectives is None:
        if trace.comm_s > 0:
            ours_s = trace.instruments_comm_s
            yield ProfilerGap(
                "communication", trace.comm_s, ours_s, trace.messages, device
            )
        return
    for c in trace.collectives:
        if c.kind is not CollectiveKind.BROADCAST and c.seconds > 0:
            yield ProfilerGap(
                f"time of {c.kind.words}s",
                c.seconds,
                c.instruments_s,
                c.messages,
                device,
            )


@check("profiler", Level.WARN, Tier.TABLE, Affected.SPLIT, explained_by={DISTURBED})
def profiler_disagrees(record: Record) -> Observation | None:
    """Our instruments and torch.profiler measure another time of communication: for the same
    iterations, by more than the launches from Python explain. On a GPU all-reduces (all-gathers,
    reduce-scatters) are compared with NCCL's kernels of the same kind; broadcasts of buffers are
    judged by `buffer-copies`. Only in the list where other programs disturbed these iterations or
    an epoch. Not judged where processes, or with device=cpu also loader workers, take turns on too
    few CPUs: a message that is launched then waits for a CPU.

    Limit: {PROFILER_LIMIT} of the profiler's time, or {LAUNCH_MS[cpu]} ms per message
    ({LAUNCH_MS[cuda]} ms on a GPU)
    Fix: check the split of Table 2 with trace=true, which keeps the profiler's trace
    """
    device = record.cell.device
    if not record.cell.strategy.under_torchrun:  # dp's copies: not collectives
        return None
    gaps = [
        gap
        for rank in record.ranks
        if rank.profiler
        for gap in communication_gaps(rank.profiler, device)
    ]
    if not gaps:
        return None
    host = busiest_host(record)
    if host and (host.is_shared if device is Device.CPU else host.is_oversubscribed):
        return None
    worst = max(gaps, key=lambda gap: gap.gap_s / gap.allowed_s)
    return Observation(
        worst.gap_s <= worst.allowed_s,
        f"{worst.what} differs by {percent_text(worst.gap_s / worst.seconds)} from the profiler's "
        f"(limit {PROFILER_LIMIT}), "
        f"{1e3 * worst.gap_s / max(1, worst.messages):.2g} ms per message (limit "
        f"{LAUNCH_MS[device]} ms)",
        tier=Tier.LIST if outside_causes(record, Step.PROFILED) else None,
    )


@check("profiler-messages", Level.FAIL, Tier.LIST, Affected.BANDWIDTH)
def profiler_counts_differ(record: Record) -> Observation | None:
    """The profiler counted other collectives or bytes than our instruments: messages were missed or
    counted twice. On a GPU it counts NCCL's kernels, of which there may be more or fewer than
    calls: there it is a warning. Not checked under dp, whose copies are not collectives to the
    profiler, and with one process, for which NCCL launches no kernel.

    Limit: exactly the same number of collectives and bytes, of each kind on a GPU
    Fix: do not use Table 3 of this cell; {REPORT_BUG}
    """
    traces = [rank.profiler for rank in record.ranks if rank.profiler]
    on_gpu = record.cell.device is Device.CUDA
    if not traces or not record.cell.strategy.under_torchrun:
        return None
    if on_gpu and record.cell.processes == 1:
        return None
    for trace in traces:
        for what, ours, theirs in _counts(trace):
            if ours != theirs:
                return Observation(
                    False,
                    f"the instruments counted {ours:,} {what}, the profiler {theirs:,}",
                    level=Level.WARN if on_gpu else None,
                )
    return Observation(
        True, f"{traces[0].messages:,} collectives, as the profiler counted them"
    )


def _counts(trace: ProfilerSummary) -> Iterator[tuple[str, int, int]]:
    """Yield what was counted, by the instruments and by the profiler."""
    if trace.collectives is None:
        yield "collectives", trace.instruments_messages, trace.messages
        if trace.message_bytes is not None:
            yield "bytes", trace.instruments_bytes, trace.message_bytes
        return
    for of_kind in trace.collectives:
        words = of_kind.kind.words
        yield f"{words}s", of_kind.instruments_messages, of_kind.messages
        if of_kind.message_bytes is not None:
            yield f"bytes of {words}s", of_kind.instruments_bytes, of_kind.message_bytes


def _copies_s(broadcasts: ProfiledCollective | None) -> float:
    """Return our time of broadcasts without NCCL's kernels: copies of buffers, and launches."""
    return broadcasts.instruments_s - broadcasts.seconds if broadcasts else 0.0


def _launches_s(trace: ProfilerSummary) -> float:
    """Return our time of collectives for which NCCL launched no kernel, as with one process."""
    return sum(
        collective.instruments_s
        for collective in trace.collectives or ()
        if collective.kind is not CollectiveKind.BROADCAST and not collective.messages
    )


@check("buffer-copies", Level.WARN, Tier.TABLE, Affected.SPLIT)
def buffers_are_copied(record: Record) -> Observation | None:
    """Copies of BatchNorm's buffers around their broadcasts take a large part of the iterations.
    DDP copies each buffer with a kernel of its own, so small batches spend more time in copies than
    in the broadcast. The time is in exposed communication.

    Limit: {COPIES_LIMIT} of the profiler's window, on every rank
    Fix: use a larger batch=, or sync_buffers=off
    """
    traces = [
        (trace, broadcasts)
        for rank in record.ranks
        if (trace := rank.profiler)
        and (broadcasts := trace.collective(CollectiveKind.BROADCAST))
        and broadcasts.messages
        and broadcasts.instruments_messages
    ]
    talk = record.communication
    broadcasts_are_buffers = talk is not None and all(
        message.purpose == Purpose.BUFFERS
        for message in talk.messages
        if message.kind is CollectiveKind.BROADCAST
    )
    if not traces or not broadcasts_are_buffers:
        return None
    trace, broadcasts = max(
        traces, key=lambda pair: _copies_s(pair[1]) / pair[0].window_s
    )
    copies_s = _copies_s(broadcasts)
    per_iteration_ms = 1e3 / max(1, trace.iterations)
    return Observation(
        copies_s <= COPIES_LIMIT * trace.window_s,
        f"buffers take {per_iteration_ms * broadcasts.instruments_s:.3g} ms per iteration, "
        f"{per_iteration_ms * broadcasts.seconds:.3g} ms of it in NCCL's broadcasts; the copies "
        f"are {percent_text(max(0.0, copies_s) / trace.window_s)} of the iterations (limit "
        f"{COPIES_LIMIT})",
    )


@check("profiler-phases", Level.WARN, Tier.TABLE, Affected.SPLIT)
def phases_disagree(record: Record) -> Observation | None:
    """The phases of a GPU disagree with the profiler: the GPU was busy for longer than we count as
    computation, idle for less time than we count as stall, or both leave different launch gaps
    between kernels. A stamp is in the wrong place. `closure` cannot show that, because phases that
    follow each other always add up. Not judged under dp, where one process has several GPUs.

    Limit: {PHASES_LIMIT} of the profiler's window, on every rank
    Fix: check the split of Table 2 with trace=true, which keeps the profiler's trace
    """
    if record.cell.device is not Device.CUDA or record.cell.strategy is Strategy.DP:
        return None
    differences = [
        difference
        for rank in record.ranks
        if rank.profiler and (difference := _phase_difference(rank.profiler))
    ]
    if not differences:
        return None
    share, text = max(differences)
    return Observation(
        share <= PHASES_LIMIT,
        f"{text} ({percent_text(max(0.0, share))} of the profiler's window, limit {PHASES_LIMIT})",
    )


def _phase_difference(trace: ProfilerSummary) -> tuple[float, str] | None:
    """Return how far phases are from what the profiler saw: share of its window, and in words.

    It is the first difference above the limit, else the largest; None if not measured. Launch gaps
    are idle times inside computation. They are our computation less the profiler's, and also the
    profiler's idle time less our stall; both must agree, and neither is negative.
    """
    busy_s, stall_s = trace.instruments_busy_s, trace.instruments_stall_s
    if not trace.window_s or busy_s is None or stall_s is None:
        return None
    busy_s += max(0.0, _copies_s(trace.collective(CollectiveKind.BROADCAST)))
    gaps_s, idle_gaps_s = (
        busy_s - trace.compute_s,
        trace.idle_s - stall_s - _launches_s(trace),
    )
    differences = {  # what is impossible, then what is inconsistent
        f"computation takes {busy_s:.3g} s, the GPU computed for {trace.compute_s:.3g} s": -gaps_s,
        f"stall is {stall_s:.3g} s, the GPU was idle for {trace.idle_s:.3g} s": -idle_gaps_s,
        f"launch gaps are {max(0.0, gaps_s):.3g} s by computation and {max(0.0, idle_gaps_s):.3g} "
        "s by idle time": abs(gaps_s - idle_gaps_s),
    }
    shares = [(seconds / trace.window_s, text) for text, seconds in differences.items()]
    return next((entry for entry in shares if entry[0] > PHASES_LIMIT), max(shares))
