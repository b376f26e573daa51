"""Fixtures: commands that leave hand-made records, and benchmarks that run in this process."""

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import msgspec
import pytest
import torch
import torch.distributed as dist

from hpml_jobs.core.cell import Cell, Outcome
from hpml_jobs.core.record import Attempt, Record
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.study.attempt import AttemptEnd
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.study.files import encode, write_whole
from tests.gpu.bench import ROOT, Finished
from tests.gpu.rehearsal import replaced_module
from tests.unit.builders import a_record
from tests.unit.worker.conftest import dynamo, restored_modes  # noqa: F401  (fixtures)

LARGEST_BATCH = 1024
"""A larger one is out of memory in these tests."""

BENCHMARKS = ROOT / "tests" / "benchmarks"
ATTEMPT = Attempt(id="gpu.r0", job="gpu")


def load_benchmark(name: str) -> ModuleType:
    """Import a script of tests/benchmarks/ as a module."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with mock.patch.object(sys, "path", [str(BENCHMARKS), *sys.path]):
        spec.loader.exec_module(module)
    return module


def finish(
    folder: CellFolder, outcome: Outcome = Outcome.OK, reason: str | None = None
) -> None:
    """Leave the exit report of an attempt; one that is ok leaves a record, too."""
    attempt = folder.attempt(ATTEMPT.id)
    end = AttemptEnd(attempt=ATTEMPT, outcome=outcome, reason=reason)
    for path, content in (
        (attempt.about, encode(ATTEMPT)),
        (attempt.end, encode(end)),
        (folder.current, ATTEMPT.id.encode()),
    ):
        write_whole(path, content)
    if outcome is Outcome.OK:
        record = encode(hand_made(folder))
        write_whole(attempt.record, record)
        write_whole(folder.record_json, record)


def hand_made(folder: CellFolder) -> Record:
    """Return a valid record of the folder's cell; seeds differ in accuracy, batches in memory."""
    cell = folder.read().cell
    record = a_record(cell, ATTEMPT.id)
    changes = {
        "test_accuracy": 0.6 + cell.seed / 100,
        "peak_memory_bytes": 10**9 + 10**6 * cell.batch,
        "optimizer_state_bytes": 10**6,
    }
    ranks = tuple(msgspec.structs.replace(rank, **changes) for rank in record.ranks)
    return msgspec.structs.replace(record, ranks=ranks)


def seams_of_overhead(module: ModuleType) -> dict[str, Any]:
    """Return seams with which one case is measured here, and the others have hand-made ratios."""
    warm_training, measure_ratios = module.warm_training, module.measure_ratios

    def warm(cell: Cell, _iterations: int) -> Any:
        is_measured = (cell.strategy, cell.batch) == (Strategy.SINGLE, 32)
        return warm_training(of_four_images(cell), 2) if is_measured else cell

    def measure(training: Any, _rounds: int) -> dict[str, list[float]]:
        if not isinstance(training, Cell):
            return measure_ratios(training, 1)
        ratios = {"instrumented": [1.02, 1.01], "again": [1.0, 0.99]}
        bare = {"bare": [1.01, 1.0]}
        return ratios | (bare if training.strategy is Strategy.SINGLE else {})

    return {
        "launch": module.measure_cases,
        "warm_training": warm,
        "measure_ratios": measure,
    }


def seam_of_ceilings(module: ModuleType) -> Callable[..., float]:
    """Return a seam with which one batch is measured here, smaller, and the others are not."""
    images_per_s = module.images_per_s

    def measure(mode: str, batch: int, options: Any) -> float:
        return float(images_per_s(mode, 4, options)) if batch == 128 else 1.0

    return measure


def of_four_images(cell: Cell) -> Cell:
    """Return the cell with a small batch."""
    workload = msgspec.structs.replace(cell.workload, images=16)
    return msgspec.structs.replace(cell, batch=4, workload=workload)


def run_here(script: str, words: Sequence[str]) -> None:
    """Run a benchmark in this process; its jobs leave hand-made records."""
    module = load_benchmark(script)

    def record_of_job(cell: Any, _root: Path) -> Record:
        return a_record(cell, ATTEMPT.id)

    def launched(which: str, ranks: int, options: Any) -> Any:
        if which == "job":
            return module.job_epochs(options, ranks)
        try:
            return module.bare_epochs(options)
        finally:
            end_process_group()

    seams: dict[str, Any] = {"run_job": record_of_job}
    if script == "overhead":
        seams |= seams_of_overhead(module)
    if script == "ceilings":
        seams["images_per_s"] = seam_of_ceilings(module)
    if script == "timed_epoch":
        seams["launch"] = launched
    jobs = mock.Mock(
        run_job=record_of_job, write_digits=load_benchmark("jobs").write_digits
    )
    with (
        replaced_module("jobs", jobs),
        mock.patch.multiple(module, create=True, **seams),
        mock.patch.object(sys, "argv", [script, *words]),
        mock.patch.object(torch, "compile", lambda model, **_: model),
    ):
        module.main()


def hand_made_results(
    words: Sequence[str], _variables: Mapping[str, str], _limit_s: float
) -> Finished:
    """Do what a command would leave, without its process."""
    script = Path(words[1])
    if script.parent.name == "benchmarks":
        with process_group_variables():
            run_here(script.stem, words[2:])
            end_process_group()
    elif "hpml_jobs.job" in words:
        folder = CellFolder(Path(words[-1]))
        fits = folder.read().cell.batch <= LARGEST_BATCH
        finish(folder, *(() if fits else (Outcome.OOM, "CUDA out of memory")))
    elif "tests.gpu.two_ranks" in words:
        return Finished(1, 0.1, "Traceback\nRuntimeError: no second rank in this test")
    return Finished(0, 0.1, "")


def process_group_variables() -> Any:
    """Return a patch of the environment with the variables of a group of one."""
    variables = {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
    }
    return mock.patch.dict(os.environ, variables)


def end_process_group() -> None:
    """Leave the process group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.fixture
def lone_process_group() -> Iterator[None]:
    """Environment of a process group of one, which is left after the test."""
    threads = torch.get_num_threads()
    with process_group_variables():
        yield
        end_process_group()
    torch.set_num_threads(threads)


@pytest.fixture
def commands() -> Callable[..., Finished]:
    """Commands that leave hand-made results."""
    return hand_made_results
