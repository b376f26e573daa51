"""Hand-made cells and records."""

from typing import Any

import msgspec

from hpml_jobs.cell import Cell, Strategy, Workload
from hpml_jobs.formulas import iterations, samples_processed
from hpml_jobs.record import Attempt, Epoch, Facts, Model, Rank, Record
from hpml_jobs.slurm import Outcome

DIGITS = Workload(
    name="digits", model="digits_cnn", data="digits", images=20_480, parameters=26_154, lr=0.05
)
MODEL = Model(
    name="digits_cnn", parameters=26_154, tensors=11, gradient_bytes=104_616, buffer_bytes=0
)


def cell(**changes: Any) -> Cell:
    """Four GPUs under ddp on the digits, unless told otherwise."""
    values = {"gpus": 4, "batch": 512, "strategy": Strategy.DDP, "workload": DIGITS, **changes}
    return Cell(**values)


def record(of: Cell, attempt: str = "101_0.r0", epoch_s: float = 8.0, **changes: Any) -> Record:
    """A valid record of a cell; rank r is r/10 s slower than rank 0."""
    assert of.workload.images is not None
    job = attempt.rpartition(".r")[0]
    values = {
        "cell": of,
        "slug": of.slug,
        "attempt": Attempt(id=attempt, job=job, hosts=("gr001",)),
        "outcome": Outcome.OK,
        "model": MODEL,
        "facts": Facts(torch="2.14.1"),
        "ranks": tuple(_rank(of, number, epoch_s + number / 10) for number in range(of.processes)),
    }
    return Record(**(values | changes))


def _rank(of: Cell, number: int, epoch_s: float) -> Rank:
    images = of.workload.images or 0
    epoch = Epoch(
        role="timed",
        epoch_s=epoch_s,
        stall_s=1.0,
        iterations=iterations(images, of.gpus, of.batch),
        samples=samples_processed(images, of.processes) // of.processes,
        loss=1.5,
        accuracy=0.5,
    )
    return Rank(
        rank=number,
        local_rank=number % of.gpus_per_node,
        host="gr001",
        devices=("cuda",),
        threads=of.threads,
        loader_workers=of.loader_workers,
        epochs=(msgspec.structs.replace(epoch, role="warmup"), epoch),
    )
