"""The profiler's iterations of a cell: warm, kept as a trace, or missing with the reason."""

import gzip
import json

import pytest
import torch

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.extras.profiler import iterations
from hpml_jobs.worker import epochs
from hpml_jobs.worker.probes import OptionalSteps, Probing
from tests.unit.worker.conftest import AVAILABLE, cpu_cell
from tests.unit.worker.test_call_order import (
    CALLS,
    EPOCH,
    calls_before_windows,
    passes_since,
    training,  # noqa: F401  (a fixture)
)


def test_profiler_begins_warm(training, monkeypatch):  # noqa: F811
    """Whole iterations of each size come after the last release of memory."""
    epochs.train_epoch(training, 0, Role.WARMUP)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: CALLS.append("released"))
    steps = OptionalSteps(training.strategy)
    probing = Probing(training, None, None, keeps_trace=False, steps=steps)
    steps.attempt("trace", lambda: iterations.cross_check(probing))
    assert steps.missing == []
    before = calls_before_windows()[-1]
    assert {*passes_since("released", before)} == {*EPOCH}


def test_profiler_out_of_memory_leaves_the_record(run_here, monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(iterations, "profile_iterations", full)
    record = run_here(cpu_cell(protocol=Protocol.FULL)).record
    assert record.ranks[0].profiler is None
    assert (
        "rank 0: trace: CUDA out of memory. Tried to allocate 2.00 GiB"
        in record.facts.missing
    )


def test_one_process_has_no_collectives_and_keeps_its_trace(run_cell):
    finished = run_cell(cpu_cell(protocol=Protocol.FULL, epochs=4), {"trace": True})
    assert (finished.code, finished.stderr) == (0, "")
    (rank,) = finished.record.ranks
    assert (rank.profiler.iterations, rank.profiler.messages, rank.profiler.comm_s) == (
        8,
        0,
        0,
    )
    assert 0 < rank.profiler.compute_s < rank.profiler.window_s
    with gzip.open(finished.attempt.trace_of(0)) as file:
        assert json.load(file)["traceEvents"]


@pytest.mark.parametrize(
    "strategy",
    [
        Strategy.DDP,
        *(
            pytest.param(strategy, marks=pytest.mark.long)
            for strategy in AVAILABLE
            if strategy not in (Strategy.SINGLE, Strategy.DP, Strategy.DDP)
        ),
    ],
)
def test_profiler_counts_the_messages_of_the_instruments(run_cell, strategy):
    cell = cpu_cell(gpus=2, strategy=strategy, protocol=Protocol.FULL, probe_s=0.0)
    finished = run_cell(cell)
    assert finished.code == 0, finished.stderr
    for rank in finished.record.ranks:
        assert rank.profiler.messages == rank.profiler.instruments_messages > 0
        assert rank.profiler.scheduling.window_s >= rank.profiler.window_s
        assert rank.profiler.message_bytes in (None, rank.profiler.instruments_bytes)
