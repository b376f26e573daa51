"""Fixtures: a cell's folder, and one rank or a torchrun of it as a process."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from hpml_jobs.core.cell import Cell, CellFile, Protocol
from hpml_jobs.core.processes import KEPT_ALIVE
from hpml_jobs.core.record import Attempt, Record
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.validation import decode
from hpml_jobs.core.workload import Workload
from hpml_jobs.study.cell_folder import AttemptFolder, CellFolder, RankError
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.worker import __main__ as rank
from hpml_jobs.worker.fork_safety import imports_for_life
from tests.unit.builders import DIGITS
from tests.unit.worker.rank_server import RankServer


@pytest.fixture(scope="session")
def rank_server() -> Iterator[RankServer]:
    server = RankServer()
    yield server
    server.close()


def results_of_ranks(
    server: RankServer, module: str, processes: int, *words: str
) -> Any:
    """Run a module with words as ranks on gloo; return the JSON that rank 0 prints."""
    folder = Path(__file__).parents[3]
    ended = server.run(processes, folder, module, *words, environment=os.environ)
    assert ended.code == 0, ended.stderr
    return json.loads(ended.stdout)


def of_all_ranks(result: dict) -> list:
    """Return the results of all ranks, in their order."""
    results = [None] * dist.get_world_size()
    dist.all_gather_object(results, result)
    return results


@pytest.fixture(scope="session", autouse=True)
def dynamo() -> None:
    """torch._dynamo, which the first optimizer imports, here as in a rank."""
    with imports_for_life():
        import torch._dynamo  # noqa: F401, PLC0415 -- only where a test trains


@pytest.fixture(autouse=True)
def restored_modes() -> Iterator[None]:
    """torch's modes as they were: cells and benchmarks set them for their whole process."""
    cuda, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = cuda.allow_tf32, cudnn.allow_tf32, cudnn.benchmark
    yield
    cuda.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = before


@pytest.fixture
def one_rank() -> Iterator[None]:
    """A process group of this process."""
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield
    dist.destroy_process_group()


@contextmanager
def fake_ranks(number: int) -> Iterator[None]:
    """Be rank 0 of so many, whose collectives do nothing.

    DDP needs `one_rank`, a group that answers.
    """
    dist.init_process_group("fake", rank=0, world_size=number, store=FakeStore())
    yield
    dist.destroy_process_group()


@pytest.fixture
def four_ranks() -> Iterator[None]:
    """Rank 0 of 4."""
    with fake_ranks(4):
        yield


EXCHANGING = [
    Strategy.DDP,
    *(
        pytest.param(strategy, marks=pytest.mark.long)
        for strategy in Strategy
        if strategy not in (Strategy.SINGLE, Strategy.DP, Strategy.DDP)
    ),
]
"""Parameters of a test: the strategies of several processes, all but ddp in `make test-long`."""

SMALL_DIGITS = msgspec.structs.replace(DIGITS, images=512, limit=512)


def cpu_cell(
    workload: Workload = SMALL_DIGITS, *, gpus: int = 1, batch: int = 64, **settings
) -> Cell:
    """Return a cell on the CPU; the default protocol is `lab`, the shorter one."""
    strategy = Strategy.SINGLE if gpus == 1 else Strategy.DDP
    protocol = settings.get("protocol", Protocol.LAB)
    values = {
        "device": Device.CPU,
        "strategy": strategy,
        "loader_workers": 1,
        "protocol": protocol,
        "epochs": protocol.epochs,
        "probe_s": 1.0,
    }
    return Cell(gpus=gpus, batch=batch, workload=workload, **(values | settings))


def cuda_cell(*, images: int = 256, **settings) -> Cell:
    """Return a cell with device=cuda of batches of 32 images, for stand-ins of a GPU."""
    workload = change_workload(SMALL_DIGITS, images=images, limit=images)
    values = {
        "device": Device.CUDA,
        "protocol": Protocol.FULL,
        "loader_workers": 0,
        "probe_s": 0.0,
    }
    return cpu_cell(workload, batch=32, **(values | settings))


class WorkerResult(NamedTuple):
    """Exit code and stderr of a process, and the attempt's folder."""

    code: int
    stderr: str
    attempt: AttemptFolder

    @property
    def record(self) -> Record:
        return decode(self.attempt.record.read_bytes(), str(self.attempt.record))

    @property
    def error(self) -> RankError:
        assert self.code == 1, self.stderr
        assert not self.attempt.record.exists()
        return self.attempt.rank_errors()[0]


def command_for(folder: CellFolder, cell: Cell) -> list[str]:
    torchrun = ["hpml_jobs.worker.agent", "--standalone", "--local-addr=127.0.0.1"]
    torchrun += [f"--nproc-per-node={cell.gpus}", "-m"]
    return [
        *(sys.executable, "-m"),
        *(torchrun if cell.strategy.under_torchrun else []),
        *("hpml_jobs.worker", str(folder.root), "17_0"),
    ]


def write_cell_in(root: Path, cell: Cell, **settings) -> CellFolder:
    """Write a cell with an attempt that has begun; its data and code are in the root."""
    folder = CellFolder(root / "cells" / cell.slug)
    file = CellFile(cell=cell, data_root=str(root), code_root=str(root), **settings)
    write_whole(folder.cell_json, encode(file))
    attempt = folder.attempt("17_0")
    attempt.errors.mkdir(parents=True, exist_ok=True)
    write_whole(attempt.about, encode(Attempt(id="17_0", job="17_0")))
    return folder


def run_forked(server: RankServer, folder: CellFolder) -> WorkerResult:
    """Run a cell as forked ranks."""
    words = ("hpml_jobs.worker", str(folder.root), "17_0")
    processes = folder.read().cell.processes
    ended = server.run(processes, folder.root, *words, environment=os.environ)
    return WorkerResult(ended.code, ended.stderr, folder.attempt("17_0"))


@pytest.fixture
def write_cell(tmp_path: Path) -> Callable[..., CellFolder]:
    return partial(write_cell_in, tmp_path)


@pytest.fixture
def run_cell(tmp_path: Path, rank_server: RankServer) -> Callable[..., WorkerResult]:
    """Run a cell as forked ranks."""

    def run(cell: Cell, **settings) -> WorkerResult:
        return run_forked(rank_server, write_cell_in(tmp_path, cell, **settings))

    return run


@pytest.fixture
def run_here(
    write_cell: Callable[..., CellFolder],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Callable[..., WorkerResult]]:
    """Like run_cell for a single process, in this one: torch is not imported again."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    # only once
    monkeypatch.setattr(torch, "set_num_interop_threads", lambda threads: None)
    monkeypatch.setattr(rank, "die_with_parent", lambda: None)
    monkeypatch.setattr(rank, "write_stacks_on_signals", lambda *_: None)

    def run(cell: Cell) -> WorkerResult:
        monkeypatch.setattr(sys, "path", [*sys.path])
        sys.modules.pop("mycode", None)  # the user's module of another cell
        folder = write_cell(cell)
        code = rank.main(str(folder.root), "17_0")
        return WorkerResult(code, capsys.readouterr().err, folder.attempt("17_0"))

    yield run
    KEPT_ALIVE.clear()


def change_workload(workload: Workload, **values) -> Workload:
    return msgspec.structs.replace(workload, **values)


class FakeCifar:
    """What torchvision's CIFAR10 has: pixels (n, 32, 32, 3) and class numbers."""

    def __init__(self, number=40):
        self.data = np.random.default_rng(0).integers(
            0, 256, (number, 32, 32, 3), dtype=np.uint8
        )
        self.targets = [index % 10 for index in range(number)]

    def __len__(self):
        return len(self.targets)
