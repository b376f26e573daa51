"""Small studies whose every text is kept: together they fill each table, list and sentence."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from msgspec.structs import replace

from hpml_jobs.core.cell import Cell, Outcome, Protocol
from hpml_jobs.core.measurements import Message
from hpml_jobs.core.quantize_settings import Quantize
from hpml_jobs.core.rank import Rank
from hpml_jobs.core.recipe import Recipe
from hpml_jobs.core.record import Record
from hpml_jobs.core.script import Script
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.training_path import Precision, TrainingPath
from hpml_jobs.core.workload import Workload
from tests.unit.builders import (
    DIGITS,
    LENET,
    LENET_BIAS,
    PUBLISHED_S,
    RESNET,
    a_cell,
    lab_cell,
    lab_record,
)
from tests.unit.check_cases import (
    FACTS,
    Change,
    attempt_between,
    change_every_rank,
    clean_record,
    late_rank,
    wait_for_cpu,
)
from tests.unit.study_builder import StudyBuilder

LAB = {"protocol": Protocol.LAB, "epochs": 5, "evaluate": True}
FACTORS = (1.0, 1.012, 0.991, 1.005, 1.02, 0.995)
"""Six runs of one cell scatter like this."""

GB = 10**9
START = datetime(2026, 10, 1, tzinfo=UTC)


def measured(
    study: StudyBuilder, cell: Cell, epoch_s: float, change: Change = lambda r: r
) -> None:
    """Add a record of a cell, with every instrument, ten minutes after the one before."""
    number = len(study.cells)
    begin = START + timedelta(minutes=10 * number)
    attempt = replace(
        attempt_between(),
        id=f"101_{number}.r0",
        job=f"101_{number}",
        started=begin.isoformat(),
        ended=(begin + timedelta(minutes=5)).isoformat(),
    )
    study.with_record(change(clean_record(cell, epoch_s, attempt=attempt)))


def lab(study: StudyBuilder) -> None:
    """The lab's published times, a batch that did not fit, a failed and a missing cell."""
    study.with_published_study(stall_s=1.5)
    study.with_out_of_memory(lab_cell(4, 2048))
    study.with_cell(lab_cell(2, 64), Outcome.FAILED, "ValueError: no such file")
    study.with_cell(lab_cell(4, 64), Outcome.PENDING, "Priority")


def full(study: StudyBuilder) -> None:
    """All instruments: 1, 2 and 4 GPUs at two batches, the strategies, a late rank, a busy node."""
    for gpus, epoch_s in ((1, 30.0), (2, 16.0), (4, 9.0)):
        for batch, factor in ((128, 1.0), (512, 0.8)):
            measured(study, a_cell(gpus=gpus, batch=batch), epoch_s * factor)
    for strategy, epoch_s in (
        (Strategy.DP, 20.0),
        (Strategy.ALLREDUCE, 9.5),
        (Strategy.ALLREDUCE_FLAT, 9.2),
        (Strategy.GATHER_SCATTER, 14.0),
    ):
        measured(study, a_cell(batch=128, strategy=strategy), epoch_s)
    measured(study, a_cell(batch=32), 11.0, late_rank(2, "forward_s", 0.6))
    measured(study, a_cell(gpus=2, batch=32), 20.0, wait_for_cpu("timed", 4.0))


def repeats(study: StudyBuilder) -> None:
    """Six runs of each cell."""
    for gpus, strategy, epoch_s in (
        (1, Strategy.SINGLE, 20.0),
        (2, Strategy.DDP, 10.8),
        (4, Strategy.DDP, 5.9),
        (4, Strategy.ALLREDUCE, 6.1),
    ):
        for repeat, factor in enumerate(FACTORS):
            cell = a_cell(gpus=gpus, batch=128, strategy=strategy, repeat=repeat)
            measured(study, cell, epoch_s * factor)


def slower(study: StudyBuilder) -> None:
    """The same cells on another day: DDP takes 4 % longer."""
    for gpus, epoch_s in ((1, 20.0), (2, 11.2), (4, 6.1)):
        for repeat, factor in enumerate(reversed(FACTORS)):
            measured(
                study, a_cell(gpus=gpus, batch=128, repeat=repeat), epoch_s * factor
            )


def paths(study: StudyBuilder) -> None:
    """Precisions, compilation and accumulation."""
    for gpus, epoch_s in ((1, 30.0), (4, 9.0)):
        for path, factor in (
            (TrainingPath(), 1.0),
            (TrainingPath(precision=Precision.BF16), 0.6),
            (TrainingPath(accumulate=4), 0.9),
        ):
            measured(study, a_cell(gpus=gpus, batch=128, path=path), epoch_s * factor)


def sharded(study: StudyBuilder) -> None:
    """Memory and messages of ddp, zero1 and fsdp."""
    parameters = RESNET.parameters or 0
    for strategy, epoch_s, peak, held, state in (
        (Strategy.DDP, 20.0, 4 * GB, None, None),
        (Strategy.ZERO1, 22.0, 3 * GB, parameters // 2, 2 * GB),
        (Strategy.FSDP, 30.0, GB, parameters // 4, None),
    ):
        record = lab_record(lab_cell(4, 128, strategy=strategy), epoch_s)
        study.with_record(_with_memory(record, peak, held, state))


def _with_memory(
    record: Record, peak: int, held: int | None, state: int | None
) -> Record:
    talk = record.ranks[0].communication
    if talk and record.cell.strategy is Strategy.FSDP:
        gathered = Message(
            kind="all_gather",
            purpose="parameters",
            dtype="float32",
            elements=1000,
            bytes=4000,
            count=record.iterations * 2,
            busy_s=0.1,
        )
        talk = replace(talk, messages=(*talk.messages, gathered))
    return change_every_rank(
        peak_memory_bytes=peak,
        held_elements=held,
        optimizer_state_bytes=state,
        communication=talk,
    )(record)


def large_batch(study: StudyBuilder) -> None:
    """Table 4: test accuracy of two recipes at a large batch, two seeds."""
    for seed in (0, 1):
        single = lab_record(lab_cell(1, 128, seed=seed, **LAB), 27.0)
        study.with_record(change_every_rank(test_accuracy=0.70 + 0.01 * seed)(single))
        for recipe, accuracy in (
            (Recipe(), 0.60),
            (Recipe(name="scaled", scaled=True), 0.64),
        ):
            cell = lab_cell(2, 512, recipe=recipe, seed=seed, **LAB)
            accurate = change_every_rank(test_accuracy=accuracy)
            study.with_record(accurate(lab_record(cell, 15.0)))


def quantized(study: StudyBuilder) -> None:
    """Both networks of the lab's second part."""
    for workload in (LENET, LENET_BIAS):
        quantize = Quantize(calibration=1_000)
        cell = lab_cell(
            1, 32, workload=workload, protocol=Protocol.LAB, quantize=quantize
        )
        study.with_record(lab_record(cell, 3.0))


def cpus(study: StudyBuilder) -> None:
    """Processes on CPUs, on one node and on two."""
    for processes, nodes, epoch_s in ((1, 1, 8.0), (2, 1, 4.6), (4, 2, 3.1)):
        cell = a_cell(gpus=processes, nodes=nodes, batch=64, device=Device.CPU)
        measured(study, cell, epoch_s)


SCRIPT = Script(path="train.py", window=(20, 40))


def windows(study: StudyBuilder) -> None:
    """A script, measured in windows of iterations: three runs on one and on two GPUs."""
    for gpus, window_s in ((1, 0.40), (2, 0.44)):
        workload = replace(DIGITS, images=40 * 16 * gpus)
        for repeat, factor in enumerate(FACTORS[:3]):
            cell = a_cell(gpus=gpus, batch=16, repeat=repeat, workload=workload)
            measured(study, cell, window_s * factor, _in_windows)


def _in_windows(record: Record) -> Record:
    """Return the record of a script instead of that of a cell with as many images as a window."""
    cell = replace(
        record.cell,
        workload=Workload(name="train", model="script", data="script"),
        protocol=Protocol.OUTSIDE,
        epochs=Protocol.OUTSIDE.epochs,
        script=SCRIPT,
    )
    facts = replace(record.facts, in_windows=True)
    ranks = tuple(map(_rank_in_windows, record.ranks))
    return replace(
        record, cell=cell, slug=cell.slug, facts=facts, ranks=ranks, microbenchmark=None
    )


def _rank_in_windows(rank: Rank) -> Rank:
    """Return what a script's process measures: no loss, no test, no epoch without exchange."""
    warmup, timed, instrumented = (
        replace(epoch, loss=None, accuracy=None, order="", lr=None)
        for epoch in rank.epochs[:3]
    )
    warmup = replace(warmup, iterations=20, samples=20 * 16)
    return replace(
        rank,
        epochs=(warmup, timed, instrumented),
        test_accuracy=None,
        test_loss=None,
        test_samples=0,
    )


def versions(study: StudyBuilder) -> None:
    """A repeat after an update of torch: it is in a condition group of its own."""
    for gpus, repeat, torch, epoch_s in (
        (1, 0, "2.7.1", 60.0),
        (2, 0, "2.7.1", 31.0),
        (2, 1, "2.8.0", 10.0),
    ):
        facts = replace(FACTS, torch=torch)
        cell = a_cell(gpus=gpus, batch=128, repeat=repeat)
        measured(
            study,
            cell,
            epoch_s,
            lambda record, facts=facts: replace(record, facts=facts),
        )


BUILT: Mapping[str, Callable[[StudyBuilder], None]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        lab,
        full,
        repeats,
        slower,
        paths,
        sharded,
        large_batch,
        quantized,
        cpus,
        windows,
        versions,
    )
}
"""Studies of records that are made here."""


def table_of_runs() -> str:
    """A run of each of the lab's published times."""
    lines = ["run,gpus,batch,epoch_s,images,loss"]
    for (gpus, batch), epoch_s in PUBLISHED_S.items():
        lines.append(f"{gpus}gpu_bs{batch},{gpus},{batch},{epoch_s},50000,1.7")
    return "\n".join(lines)


def build(name: str, outputs: Path) -> None:
    """Write a study's folder below `outputs`."""
    BUILT[name](StudyBuilder(outputs / name))
