"""Hand-made cells and records, complete as the full protocol writes them.

`a_cell` and `a_record` are the defaults; `lab_cell` and `lab_record` are those of the lab's
published study.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from hpml_jobs.core.built_in import TransformerShape
from hpml_jobs.core.cell import Cell, Outcome, Protocol
from hpml_jobs.core.formulas import samples_processed
from hpml_jobs.core.measurements import (
    Epoch,
    EvaluationShare,
    Exchange,
    Phases,
    Scheduling,
    SlowIterations,
    Stalls,
    Steps,
)
from hpml_jobs.core.rank import Rank
from hpml_jobs.core.record import Attempt, Facts, Model, Record
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.workload import Workload
from tests.unit.communication_results import (
    communication_of,
    has_communication,
    iterations_per_epoch,
    messages_of,
    microbenchmark_of,
    sends_buffers,
)

if TYPE_CHECKING:
    from hpml_jobs.report.frame.table import Table

DIGITS = Workload(
    name="digits",
    model="digits_cnn",
    data="digits",
    images=20_480,
    parameters=26_154,
    lr=0.05,
)
MODEL = Model(
    name="digits_cnn",
    parameters=26_154,
    tensors=11,
    gradient_bytes=104_616,
    buffer_bytes=904,
)


RESNET = Workload(
    name="resnet18_cifar10",
    model="resnet18_cifar",
    data="cifar10",
    images=50_000,
    parameters=11_173_962,
)
NANO_SHAPE = TransformerShape(layers=4, heads=4, width=64, context=128, vocab=256)
NANO = Workload(
    name="gpt_nano",
    model="gpt",
    data="text",
    parameters=224_640,
    **NANO_SHAPE._asdict(),
    test_batch=32,
)
LENET = Workload(
    name="lenet_cifar10",
    model="lenet",
    data="cifar10",
    images=50_000,
    parameters=62_000,
    lr=0.02,
)
LENET_BIAS = msgspec.structs.replace(
    LENET, name="lenet_bias_cifar10", model="lenet_bias", parameters=62_010
)
PUBLISHED_S = {
    (1, 32): 48.612, (2, 32): 30.819, (4, 32): 30.822,
    (1, 128): 27.224, (2, 128): 20.923, (4, 128): 19.878,
    (1, 512): 25.945, (2, 512): 15.664, (4, 512): 15.127,
}  # fmt: skip
"""Epoch times of a published report of the lab, DDP, by GPUs and batch per GPU."""

V100 = Facts(
    commit="0123456789abcdef",
    dirty=False,
    torch="2.7.1+cu126",
    cuda="12.6",
    cudnn=90501,
    nccl="2.26.2",
    driver="550.54.15",
    gpu_model="Tesla V100-SXM2-16GB",
    cpu_model="Intel Xeon Gold 6248",
    tf32_matmul=False,
    tf32_cudnn=True,
    cudnn_benchmark=True,
    cudnn_deterministic=False,
)
CPU = Facts(torch="2.14.1", cpu_model="AMD EPYC 7543", backend=None)


def a_cell(**changes: Any) -> Cell:
    """Return a cell of 4 GPUs, batch 512, digits; strategy ddp, or single on one GPU."""
    values = {"gpus": 4, "batch": 512, "workload": DIGITS, **changes}
    protocol = values.get("protocol", Protocol.FULL)
    strategy = Strategy.SINGLE if values["gpus"] == 1 else Strategy.DDP
    return Cell(**({"epochs": protocol.epochs, "strategy": strategy} | values))


def lab_cell(gpus: int, batch: int, **changes: Any) -> Cell:
    """Return a cell of the lab's published study, of ResNet-18."""
    return a_cell(**({"gpus": gpus, "batch": batch, "workload": RESNET} | changes))


def quantized_result_of(of):
    """What the extra would have measured; None if the cell is not quantized."""
    if of.quantize is None:
        return None
    from tests.unit.quantization_results import quantized_result  # noqa: PLC0415

    return quantized_result(of)


def a_record(
    of: Cell, attempt: str = "101_0.r0", epoch_s: float = 8.0, **changes: Any
) -> Record:
    """A valid record of a cell, every check passed; rank r is r/1000 s slower than rank 0.

    Of the timed epoch 2 % is stall, half of it in the first iteration. The instrumented is 0.5 %
    longer, on all ranks: 8 % is communication nothing hides (0.01 % more on all ranks but the
    first, which waits least), of it 0.5 % waiting; 10 % is communication in all. Without gradient
    exchange it takes 11 % less.
    """
    job = attempt.rpartition(".r")[0]
    model = changes.get("model") or MODEL
    slowest_s = [
        epoch_s - (of.processes - 1 - rank) / 1000 for rank in range(of.processes)
    ]
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
        "quantized": msgspec.to_builtins(quantized_result_of(of)),
        "ranks": tuple(
            a_rank(of, number, seconds, model)
            for number, seconds in enumerate(slowest_s)
        ),
    }
    if has_communication(of):
        net_s = 0.1 * 1.005 * epoch_s
        count = len(messages_of(of, model, epoch_s)) * iterations_per_epoch(of)
        values["exchange"] = Exchange(
            collectives=count,
            skew_s=0.05 * net_s,
            net_s=0.95 * net_s,
            exchange_s=0.075 * 1.005 * epoch_s,
        )
        values["microbenchmark"] = microbenchmark_of(of, model, epoch_s)
    return Record(**(values | changes))


def a_rank(of: Cell, number: int, epoch_s: float, model: Model = MODEL) -> Rank:
    """One rank of a valid record."""
    step_s = epoch_s / iterations_per_epoch(of)
    longest_s = epoch_s + (of.processes - 1 - number) / 1000
    timed = Epoch(
        role="timed",
        epoch_s=epoch_s,
        stall_s=0.02 * epoch_s,
        iterations=iterations_per_epoch(of),
        samples=samples_processed(of.workload.images or 0, of.processes)
        // of.processes,
        loss=1.5,
        accuracy=0.5,
        steps=Steps(
            median_s=step_s,
            p10_s=step_s,
            p90_s=step_s,
            first_tenth_s=step_s,
            last_tenth_s=step_s,
            block_medians_s=(step_s,) * 10,
        ),
        scheduling=quiet_scheduling(of, epoch_s),
        slow=SlowIterations(count=0, excess_s=0.0, longest_s=step_s, longest_index=0),
        stalls=Stalls(first_s=0.01 * epoch_s, p20_s=0.005 * step_s, last_s=0.0),
    )
    epochs = [msgspec.structs.replace(timed, role="warmup"), timed]
    if of.protocol is Protocol.FULL:
        epochs.append(instrumented_epoch(of, timed, longest_s, waits=number > 0))
    plain = msgspec.structs.replace(timed, role="plain")
    epochs = with_training_quality(
        of, number, epochs + [plain] * (of.epochs - len(epochs))
    )
    if has_communication(of):
        epochs.append(
            msgspec.structs.replace(timed, role="unsynced", epoch_s=0.89 * epoch_s)
        )
    return Rank(
        rank=number,
        local_rank=number % of.gpus_per_node,
        host="gr001",
        devices=("cuda",),
        affinity=tuple(range(of.gpus_per_node * (of.loader_workers + 1))),
        threads=of.threads,
        loader_workers=of.loader_workers,
        epochs=tuple(epochs),
        test_accuracy=0.65 + of.seed / 10_000 if of.quantize else 0.6,
        test_loss=1.2,
        test_samples=300,
        parameters_hash="5eed",
        buffers_hash="0ff" if number == 0 else f"b0ff{number}",
        communication=communication_of(
            of, 1.005 * (longest_s - min(number, 1) / 1000), model
        )
        if has_communication(of)
        else None,
    )


def quiet_scheduling(of: Cell, epoch_s: float) -> Scheduling:
    """Each rank uses 90 % of a CPU; other processes use 1 % of one."""
    ranks = min(of.processes, of.gpus_per_node)
    return Scheduling(
        window_s=epoch_s,
        run_queue_s=0.001 * epoch_s,
        loader_run_queue_s=0.0,
        cpu_s=0.9 * epoch_s,
        busy_s=(0.9 * ranks + 0.01) * epoch_s,
        stolen_s=0.0,
        throttled_s=0.0,
        continued_s=(),
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
            share=EvaluationShare(
                loss_sum=1.2 * tested, correct=tested * (3 + e) // 10, samples=tested
            )
            if of.evaluate
            else None,
        )
        for e, epoch in enumerate(epochs)
    ]


def instrumented_epoch(
    of: Cell, timed: Epoch, longest_s: float, *, waits: bool
) -> Epoch:
    whole = 1.005 * longest_s
    forward = 0.01 if sends_buffers(of) and has_communication(of) else 0.0
    exposed = (0.0801 if waits else 0.08) - forward if has_communication(of) else 0.0
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


def lab_record(
    cell: Cell, epoch_s: float, stall_s: float = 0.0, facts: Facts = V100
) -> Record:
    """Return a record whose ranks all have the same times in the timed epoch."""
    digits = cell.workload.data == "digits"
    parameters = 26_154 if digits else 11_173_962
    model = Model(
        name=cell.workload.model,
        parameters=parameters,
        tensors=62,
        gradient_bytes=4 * parameters,
        buffer_bytes=38_560,
    )
    whole = a_record(cell, "17_0.r0", epoch_s, facts=facts, model=model)
    device = "cpu" if cell.device is Device.CPU else facts.gpu_model
    ranks = []
    for rank in whole.ranks:
        changes = {"epoch_s": epoch_s, "stall_s": stall_s}
        epochs = tuple(
            msgspec.structs.replace(epoch, **changes)
            if epoch.role in ("warmup", "timed")
            else epoch
            for epoch in rank.epochs
        )
        devices = (device,) * (cell.gpus // cell.processes)
        ranks.append(
            msgspec.structs.replace(rank, epochs=epochs, devices=devices, host="node1")
        )
    attempt = Attempt(id="17_0-0", job="17_0", hosts=("node1",))
    return msgspec.structs.replace(whole, ranks=tuple(ranks), attempt=attempt)


def texts_by_label(table: "Table") -> dict[str, tuple[str, ...]]:
    """Return a table's texts by the label of their line."""
    return {line.label: line.texts for line in table.lines}
