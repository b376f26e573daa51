"""Whole cells on the stand-in: the results of the CPU, and faults that only a GPU shows."""

import os
from pathlib import Path

import numpy as np
import pytest

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.strategies import Loader
from hpml_jobs.results.checks import study as checks
from tests import device
from tests.unit.worker.conftest import WorkerResult, cuda_cell

ROOT = Path(__file__).parents[2]


def short_cell(**settings):
    return cuda_cell(protocol=Protocol.LAB, epochs=2, **settings)


@pytest.fixture
def run_cell(write_cell, rank_server):
    """Return a function that runs a cell with device=cuda in a place, perhaps with a fault."""

    def run(cell, place, *fault):
        folder = write_cell(cell)
        words = ("tests.device.rank", place, str(folder.root), "17_0", *fault)
        ended = rank_server.run(cell.processes, ROOT, *words, environment=os.environ)
        return WorkerResult(ended.code, ended.stderr, folder.attempt("17_0"))

    return run


def trained(result):
    """Return what a cell has computed: equal for results that are equal to the last bit."""
    assert result.code == 0, result.stderr
    with np.load(result.attempt.iterations) as arrays:
        losses = arrays["curve_loss"].tolist()
    ranks = result.record.ranks
    return losses, [
        (rank.parameters_hash, rank.buffers_hash, rank.test_loss) for rank in ranks
    ]


@pytest.mark.parametrize(
    "cell",
    [
        cuda_cell(loader_workers=1),
        short_cell(loader=Loader.DEVICE),
        cuda_cell(gpus=2, loader=Loader.DEVICE, probe_s=0.01),
    ],
    ids=["single", "loader=device", "ddp"],
)
def test_cell_gives_the_results_of_the_cpu(run_cell, cell):
    on_cpu = trained(run_cell(cell, "cpu"))
    result = run_cell(cell, device.NAME)
    assert trained(result) == on_cpu
    record = result.record
    assert (record.microbenchmark is not None) == (cell.probe_s > 0)
    for rank in record.ranks:
        assert rank.timed.memory.allocated_bytes > record.model.gradient_bytes


def test_gradients_that_are_not_awaited_give_different_replicas(run_cell):
    result = run_cell(
        cuda_cell(gpus=2, loader=Loader.DEVICE), device.NAME, "gradients_not_awaited"
    )
    assert result.code == 0, result.stderr
    failed = [
        r.check
        for r in checks.check_record(result.record)
        if r.level is checks.Level.FAIL
    ]
    assert "replicas" in failed


def test_host_that_waits_in_the_loop_is_found(run_cell):
    error = run_cell(short_cell(), device.NAME, "hits_counted_on_host").error
    assert "the host waited for the device in the loop" in error.reason
