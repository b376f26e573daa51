"""Hand-made communication of a record: messages, profiler trace, microbenchmark."""

from hpml_jobs.core.cell import Cell, Protocol
from hpml_jobs.core.formulas import iterations
from hpml_jobs.core.measurements import (
    CollectiveKind,
    Communication,
    Message,
    Microbenchmark,
    MicrobenchmarkPoint,
    ProfiledCollective,
    ProfilerSummary,
)
from hpml_jobs.core.record import Model
from hpml_jobs.core.strategies import Device, SyncBuffers


def has_communication(of: Cell) -> bool:
    """Whether the record of a cell has communication in it."""
    return of.protocol is Protocol.FULL and of.strategy.under_torchrun and of.gpus > 1


def iterations_per_epoch(of: Cell) -> int:
    return iterations(of.workload.images or 0, of.gpus, of.batch, of.path.accumulate)


def sends_buffers(of: Cell) -> bool:
    """Whether every forward sends BatchNorm's buffers, as under ddp."""
    return of.strategy.traffic.sync_buffers is SyncBuffers.ON


def messages_of(of: Cell, model: Model, epoch_s: float) -> list[Message]:
    """What one rank sends in an epoch: gradients in one message, and under ddp the buffers."""
    count = iterations_per_epoch(of)
    busy_s = 0.09 * 1.005 * epoch_s
    gradients = {
        "purpose": "gradients",
        "dtype": "float32",
        "elements": model.gradient_bytes // 4,
        "bytes": model.gradient_bytes,
        "count": count,
    }
    kinds = of.strategy.traffic.gradients
    messages = [
        Message(kind=kind, busy_s=busy_s / len(kinds), **gradients) for kind in kinds
    ]
    if sends_buffers(of):
        buffers = {
            "elements": model.buffer_bytes // 4,
            "bytes": model.buffer_bytes,
            "count": count,
        }
        messages.append(
            Message(
                kind="broadcast",
                purpose="buffers",
                dtype="float32",
                busy_s=0.01 * 1.005 * epoch_s,
                **buffers,
            )
        )
    return messages


def communication_of(of: Cell, epoch_s: float, model: Model) -> Communication:
    return Communication(
        total_s=0.1 * epoch_s,
        gradients_s=0.09 * epoch_s if sends_buffers(of) else 0.1 * epoch_s,
        messages=tuple(messages_of(of, model, epoch_s / 1.005)),
    )


def a_trace(of: Cell, step_s: float) -> ProfilerSummary:
    """A trace of 10 iterations, at most 2 s; on a GPU with what is known of NCCL's kernels."""
    return ProfilerSummary(
        iterations=min(10, max(1, int(2.0 / step_s))),
        window_s=2.0,
        compute_s=1.7,
        comm_s=0.2,
        overlap_s=0.05,
        idle_s=0.15,
        instruments_comm_s=0.202,
        messages=20,
        message_bytes=2_000,
        instruments_messages=20,
        instruments_bytes=2_000,
        instruments_busy_s=1.81,
        instruments_stall_s=0.04,
        collectives=nccl_kernels() if of.device is Device.CUDA else None,
    )


def nccl_kernels() -> tuple[ProfiledCollective, ...]:
    """All-reduces of gradients and broadcasts of buffers, by both instruments."""
    gradients = {"seconds": 0.18, "instruments_s": 0.182}
    buffers = {"seconds": 0.02, "instruments_s": 0.03}
    return tuple(
        ProfiledCollective(
            kind=kind,
            messages=10,
            message_bytes=1_000,
            instruments_messages=10,
            instruments_bytes=1_000,
            **times,
        )
        for kind, times in (
            (CollectiveKind.ALL_REDUCE, gradients),
            (CollectiveKind.BROADCAST, buffers),
        )
    )


def microbenchmark_of(of: Cell, model: Model, epoch_s: float) -> Microbenchmark:
    """A line T = alpha + beta s on which the cell's own gradient message takes 80 % of its time."""
    own_s = 0.8 * 0.09 * 1.005 * epoch_s / iterations_per_epoch(of)
    size = model.gradient_bytes
    alpha_s, beta = 0.1 * own_s, 0.9 * own_s / size
    sizes = {2**power: False for power in range(10, 29)} | {size: True}
    return Microbenchmark(
        points=tuple(
            MicrobenchmarkPoint(
                bytes=n,
                trials=20,
                median_s=alpha_s + beta * n,
                min_s=0.9 * (alpha_s + beta * n),
                max_s=1.1 * (alpha_s + beta * n),
                sent=mine,
            )
            for n, mine in sorted(sizes.items())
        ),
        largest_asked_bytes=2**28,
        seconds=5.0,
    )
