"""A study folder built of hand-made records."""

from pathlib import Path

import msgspec
import pytest

from hpml_jobs.checks import CheckResult
from hpml_jobs.core.cell import Cell, CellFile, Device, Strategy
from hpml_jobs.core.record import Attempt, Facts, Model, Record
from hpml_jobs.core.workload import Workload
from hpml_jobs.report.collect import collect
from hpml_jobs.report.report import Report
from hpml_jobs.report.table import Table
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.study.cell_state import CellState
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.study.study import Study
from tests.unit import builders as values

GRADIENT_BYTES = 44_695_848
PUBLISHED_S = {
    (1, 32): 48.612, (2, 32): 30.819, (4, 32): 30.822,
    (1, 128): 27.224, (2, 128): 20.923, (4, 128): 19.878,
    (1, 512): 25.945, (2, 512): 15.664, (4, 512): 15.127,
}  # fmt: skip
"""Epoch times of a published report of the lab, DDP, by GPUs and batch per GPU."""

RESNET = Workload(
    name="resnet18_cifar10",
    model="resnet18_cifar",
    data="cifar10",
    images=50_000,
    parameters=11_173_962,
)
DIGITS = Workload(
    name="digits", model="digits_cnn", data="digits", images=20_480, parameters=26_154, lr=0.05
)
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


def cell(gpus: int, batch: int, **changes: object) -> Cell:
    """One cell; `single` on one GPU and ddp on more, unless told otherwise."""
    strategy = Strategy.SINGLE if gpus == 1 else Strategy.DDP
    return values.a_cell(
        gpus=gpus, batch=batch, **{"strategy": strategy, "workload": RESNET, **changes}
    )


def record(cell: Cell, epoch_s: float, stall_s: float = 0.0, facts: Facts = V100) -> Record:
    """A valid record of one cell, every rank with the same times in its timed epoch."""
    digits = cell.workload.data == "digits"
    parameters = 26_154 if digits else 11_173_962
    model = Model(
        name=cell.workload.model,
        parameters=parameters,
        tensors=62,
        gradient_bytes=4 * parameters,
        buffer_bytes=38_560,
    )
    whole = values.a_record(cell, "17_0.r0", epoch_s, facts=facts, model=model)
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
        ranks.append(msgspec.structs.replace(rank, epochs=epochs, devices=devices, host="node1"))
    attempt = Attempt(id="17_0-0", job="17_0", hosts=("node1",))
    return msgspec.structs.replace(whole, ranks=tuple(ranks), attempt=attempt)


class Maker:
    """Builds a study's folder, cell by cell; tests find the makings of a record here too."""

    cell = staticmethod(cell)
    record = staticmethod(record)
    resnet, digits = RESNET, DIGITS
    v100, cpu = V100, CPU
    published_s = PUBLISHED_S

    def __init__(self, root: Path) -> None:
        self.study = Study(root)
        self.study.create()
        self.states: dict[str, CellState] = {}

    def ask(self, cell: Cell, outcome: Outcome = Outcome.OK, reason: str = "") -> str:
        """Write cell.json and note the cell's state; its slug."""
        file = CellFile(cell=cell, data_root="/data", code_root="/code")
        write_whole(self.study.cell(cell.slug).cell_json, encode(file))
        self.states[cell.slug] = CellState(slug=cell.slug, outcome=outcome, reason=reason)
        return cell.slug

    def add(self, record: Record) -> str:
        """A cell with its record."""
        slug = self.ask(record.cell)
        write_whole(self.study.cell(slug).record_json, encode(record))
        return slug

    def nine(
        self, stall_s: float = 0.0, facts: Facts = V100, but: tuple[tuple[int, int], ...] = ()
    ) -> None:
        """The published study, without the cells named in `but`."""
        for (gpus, batch), epoch_s in PUBLISHED_S.items():
            if (gpus, batch) not in but:
                self.add(record(cell(gpus, batch), epoch_s, stall_s, facts))

    def out_of_memory(self, cell: Cell, facts: Facts | None = None) -> str:
        """A cell that the device's memory could not hold."""
        whole = record(cell, 1.0)
        reason = "CUDA out of memory. Tried to allocate 2.00 GiB\nand more"
        return self.add(
            msgspec.structs.replace(
                whole, outcome=Outcome.OOM, reason=reason, ranks=(), model=None, facts=facts
            )
        )

    def collect(self) -> Report:
        """The study's report."""
        return collect(self.study, self.states)

    def table(self, label: str, group: int = 1) -> Table:
        """One table of the report."""
        tables = self.collect().groups[group - 1].tables
        return next(table for table in tables if table.label == label)


@pytest.fixture(autouse=True)
def ruling(monkeypatch):
    """Verdicts by slug, for a test to fill; hand-made records are judged by nothing else."""
    given: dict[str, tuple[CheckResult, ...]] = {}
    monkeypatch.setattr("hpml_jobs.checks.of_study", lambda records: given)
    return given


@pytest.fixture
def make(tmp_path: Path) -> Maker:
    return Maker(tmp_path / "lab-greene-v100")
