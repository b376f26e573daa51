"""Hand-made cells and records: whole ones, as the full protocol leaves them."""

from typing import Any

import msgspec

from hpml_jobs.core.cell import Cell, Protocol, Strategy
from hpml_jobs.core.formulas import iterations, samples_processed
from hpml_jobs.core.measurements import (
    Communication,
    Epoch,
    Exchange,
    Message,
    Phases,
    Probe,
    ProbePoint,
    Share,
    Steps,
    Trace,
)
from hpml_jobs.core.quantization import (
    BINS,
    Bound,
    Latency,
    Layer,
    Quantized,
    Reference,
    Spread,
    Step,
)
from hpml_jobs.core.record import Attempt, Facts, Model, Rank, Record
from hpml_jobs.core.workload import Workload
from hpml_jobs.slurm.states import Outcome

DIGITS = Workload(
    name="digits", model="digits_cnn", data="digits", images=20_480, parameters=26_154, lr=0.05
)
MODEL = Model(
    name="digits_cnn", parameters=26_154, tensors=11, gradient_bytes=104_616, buffer_bytes=904
)


def a_cell(**changes: Any) -> Cell:
    """Four GPUs under ddp on the digits, unless told otherwise."""
    values = {"gpus": 4, "batch": 512, "strategy": Strategy.DDP, "workload": DIGITS, **changes}
    protocol = values.get("protocol", Protocol.FULL)
    return Cell(**({"epochs": protocol.epochs} | values))


def a_record(of: Cell, attempt: str = "101_0.r0", epoch_s: float = 8.0, **changes: Any) -> Record:
    """A valid record of a cell, every check passed; rank r is r/1000 s slower than rank 0.

    Of the timed epoch 2 % is stall; of the instrumented one, 0.5 % longer, 8 % is communication
    nothing hides, 10 % communication in all; without gradient exchange it takes 11 % less.
    """
    job = attempt.rpartition(".r")[0]
    model = changes.get("model") or MODEL
    slowest_s = [epoch_s - (of.processes - 1 - rank) / 1000 for rank in range(of.processes)]
    values = {
        "cell": of,
        "slug": of.slug,
        "attempt": Attempt(
            id=attempt,
            job=job,
            hosts=("gr001",),
            started="2026-10-01T10:00:00+00:00",
            ended="2026-10-01T10:01:00+00:00",
        ),
        "outcome": Outcome.OK,
        "model": model,
        "facts": Facts(torch="2.14.1"),
        "quantized": quantized_result(of) if of.quantize else None,
        "ranks": tuple(
            a_rank(of, number, seconds, model) for number, seconds in enumerate(slowest_s)
        ),
    }
    if has_communication(of):
        net_s = 0.1 * 1.005 * epoch_s
        count = len(messages_of(of, model, epoch_s)) * iterations_per_epoch(of)
        values["exchange"] = Exchange(collectives=count, skew_s=0.05 * net_s, net_s=0.95 * net_s)
        values["probe"] = microbenchmark_of(of, model, epoch_s)
    return Record(**(values | changes))


LENET = Workload(
    name="lenet_cifar10", model="lenet", data="cifar10", images=50_000, parameters=62_000, lr=0.02
)
LENET_BIAS = msgspec.structs.replace(
    LENET, name="lenet_bias_cifar10", model="lenet_bias", parameters=62_010
)


def quantized_result(of: Cell) -> Quantized:
    """Of 10,000 test images fp32 has 6,500 right; every step after it loses ten more.

    Two layers, the second with a bias for lenet_bias; a latency of each way at batch 1.
    """
    bias = of.workload.model == "lenet_bias"
    schemes = [
        (what, bound, per_channel)
        for what in ("weights", "integers")
        for bound in Bound
        for per_channel in ((False, True) if of.quantize and of.quantize.per_channel else (False,))
    ]
    steps = [Step(what="fp32", correct=6_500 + of.seed, samples=10_000, bytes=248_000)]
    for number, (what, bound, per_channel) in enumerate(schemes, start=1):
        layers = (quantized_layer("conv1", bias=False), quantized_layer("fc3", bias=bias))
        steps.append(
            Step(
                what=what,
                bound=bound,
                per_channel=per_channel,
                correct=6_500 - 10 * number,
                samples=10_000,
                bytes=62_020,
                layers=layers if what == "integers" else (),
            )
        )
    return Quantized(
        calibration=1_000,
        bias=bias,
        spreads=tuple(
            a_spread(layer, what)
            for what, layers in (
                ("weights", ("conv1", "fc3")),
                ("activations", ("input", "conv1", "fc3")),
            )
            for layer in layers
        ),
        steps=tuple(steps),
        latencies=(
            a_latency("fp32", 2e-3),
            a_latency("ours int8", 5e-3),
            a_latency("torch int8", 1e-3),
        ),
        reference=Reference(how="pt2e 0.18", correct=6_480, samples=10_000, bytes=63_000),
    )


def quantized_layer(name: str, *, bias: bool) -> Layer:
    return Layer(
        name=name,
        input_scale=0.02,
        weight_scales=(0.004, 0.008),
        output_scale=0.05,
        weights_clipped=3,
        weights=600,
        accumulator_least=-12_000,
        accumulator_most=15_000,
        clipped=20,
        outputs=10_000,
        bias_least=-40 if bias else None,
        bias_most=50 if bias else None,
    )


def a_spread(layer: str, what: str) -> Spread:
    """A triangle of values from -1 to 1; activations from 0."""
    least = -1.0 if what == "weights" else 0.0
    return Spread(
        layer=layer,
        what=what,
        values=1_056,
        least=least,
        most=1.0,
        mean=0.1,
        sigma=0.2,
        percentile=0.9,
        counts=tuple(min(n, BINS - 1 - n) for n in range(BINS)),
    )


def a_latency(what: str, median_s: float) -> Latency:
    return Latency(
        what=what, batch=1, runs=50, median_s=median_s, p10_s=0.9 * median_s, p90_s=1.5 * median_s
    )


def has_communication(of: Cell) -> bool:
    """Whether the record of a cell has communication in it."""
    return of.protocol is Protocol.FULL and of.strategy.under_torchrun and of.gpus > 1


def iterations_per_epoch(of: Cell) -> int:
    return iterations(of.workload.images or 0, of.gpus, of.batch)


def a_rank(of: Cell, number: int, epoch_s: float, model: Model = MODEL) -> Rank:
    """One rank of a valid record."""
    step_s = epoch_s / iterations_per_epoch(of)
    timed = Epoch(
        role="timed",
        epoch_s=epoch_s,
        stall_s=0.02 * epoch_s,
        iterations=iterations_per_epoch(of),
        samples=samples_processed(of.workload.images or 0, of.processes) // of.processes,
        loss=1.5,
        accuracy=0.5,
        steps=Steps(
            median_s=step_s, p10_s=step_s, p90_s=step_s, first_tenth_s=step_s, last_tenth_s=step_s
        ),
    )
    epochs = [msgspec.structs.replace(timed, role="warmup"), timed]
    if of.protocol is Protocol.FULL:
        epochs.append(instrumented_epoch(of, timed))
    plain = msgspec.structs.replace(timed, role="plain")
    epochs = with_training_quality(of, number, epochs + [plain] * (of.epochs - len(epochs)))
    if has_communication(of):
        epochs.append(msgspec.structs.replace(timed, role="unsynced", epoch_s=0.89 * epoch_s))
    return Rank(
        rank=number,
        local_rank=number % of.gpus_per_node,
        host="gr001",
        devices=("cuda",),
        affinity=tuple(range(of.gpus_per_node * (of.loader_workers + 1))),
        threads=of.threads,
        loader_workers=of.loader_workers,
        epochs=tuple(epochs),
        test_accuracy=quantized_result(of).steps[0].accuracy if of.quantize else 0.6,
        test_loss=1.2,
        test_samples=300,
        parameters_hash="5eed",
        buffers_hash="0ff" if number == 0 else f"b0ff{number}",
        communication=communication_of(of, 1.005 * epoch_s, model)
        if has_communication(of)
        else None,
        trace=a_trace() if of.protocol is Protocol.FULL else None,
    )


def with_training_quality(of: Cell, number: int, epochs: list[Epoch]) -> list[Epoch]:
    """The epochs of training with what each of them learnt; e counts from 0.

    Every plain epoch loses 0.1 and has 5 % more right than the one before; of its test images
    a rank has 30 % right, then 10 % more after every epoch.
    """
    lr = of.workload.lr * of.recipe.factor(of.global_batch)
    tested = 300 // of.processes
    more = [max(0, e + 1 - of.protocol.epochs) for e in range(len(epochs))]
    return [
        msgspec.structs.replace(
            epoch,
            loss=1.5 - 0.1 * more[e],
            accuracy=0.5 + 0.05 * more[e],
            order=f"r{number}" + (f"e{e}" if of.set_epoch else ""),
            lr=(lr, lr),
            share=Share(loss_sum=1.2 * tested, correct=tested * (3 + e) // 10, samples=tested)
            if of.evaluate
            else None,
        )
        for e, epoch in enumerate(epochs)
    ]


def instrumented_epoch(of: Cell, timed: Epoch) -> Epoch:
    whole = 1.005 * timed.epoch_s
    forward = 0.01 if of.strategy is Strategy.DDP and has_communication(of) else 0.0
    exposed = 0.08 - forward if has_communication(of) else 0.0
    parts = {
        "stall": 0.02,
        "h2d": 0.01,
        "forward": 0.30,
        "comm_exposed": exposed,
        "optimizer": 0.05,
    }
    parts["backward"] = 1 - sum(parts.values())
    phases = Phases(
        **{f"{name}_s": share * whole for name, share in parts.items()},
        comm_forward_s=forward * whole,
    )
    return msgspec.structs.replace(
        timed, role="instrumented", epoch_s=whole, phases=phases, closure=0.0
    )


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
    if of.strategy is Strategy.GATHER_SCATTER:
        kinds = ("gather", "scatter")
        return [Message(kind=kind, busy_s=busy_s / 2, **gradients) for kind in kinds]
    messages = [Message(kind="all_reduce", busy_s=busy_s, **gradients)]
    if of.strategy is Strategy.DDP:
        buffers = {"elements": model.buffer_bytes // 4, "bytes": model.buffer_bytes, "count": count}
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


def communication_of(of: Cell, epoch_s: float, model: Model = MODEL) -> Communication:
    return Communication(
        total_s=0.1 * epoch_s,
        gradients_s=0.09 * epoch_s if of.strategy is Strategy.DDP else 0.1 * epoch_s,
        messages=tuple(messages_of(of, model, epoch_s / 1.005)),
    )


def a_trace() -> Trace:
    return Trace(
        iterations=10,
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
    )


def microbenchmark_of(of: Cell, model: Model, epoch_s: float) -> Probe:
    """A line T = alpha + beta s on which the cell's own gradient message takes 80 % of its time."""
    own_s = 0.8 * 0.09 * 1.005 * epoch_s / iterations_per_epoch(of)
    size = model.gradient_bytes
    alpha_s, beta = 0.1 * own_s, 0.9 * own_s / size
    sizes = {2**power: False for power in range(10, 29)} | {size: True}
    return Probe(
        points=tuple(
            ProbePoint(
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
