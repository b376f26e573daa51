"""Hand-made communication of a record: messages, microbenchmark."""

from hpml_jobs.core.cell import Cell, Protocol
from hpml_jobs.core.formulas import iterations
from hpml_jobs.core.measurements import (
    Communication,
    Message,
    Microbenchmark,
    MicrobenchmarkPoint,
)
from hpml_jobs.core.record import Model
from hpml_jobs.core.strategies import SyncBuffers


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
