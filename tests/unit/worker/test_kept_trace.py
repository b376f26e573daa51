"""The trace of trace=true: warm, readable, and with the messages that the instruments count."""

import gzip

import pytest
import torch

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.measurements import Role
from hpml_jobs.worker import epochs, probes
from tests.unit.worker.traces import content_of, events_in_window

from .conftest import EXCHANGING, cpu_cell
from .test_call_order import (
    CALLS,
    EPOCH,
    calls_before_windows,
    passes_since,
    training,  # noqa: F401  (a fixture)
)


def test_trace_begins_warm(training, monkeypatch, tmp_path):  # noqa: F811
    """Whole iterations of each size come after the last release of memory."""
    epochs.train_epoch(training, 0, Role.WARMUP)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: CALLS.append("released"))
    steps = probes.OptionalSteps(training.strategy)
    probes.write_trace(training, tmp_path / "trace.json.gz", steps)
    assert steps.missing == []
    before = calls_before_windows()[-1]
    assert {*passes_since("released", before)} == {*EPOCH}


def test_trace_out_of_memory_leaves_the_record(training, monkeypatch, tmp_path):  # noqa: F811
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(training, "warm", full)
    steps = probes.OptionalSteps(training.strategy)
    probes.write_trace(training, tmp_path / "trace.json.gz", steps)
    text = "trace: CUDA out of memory. Tried to allocate 2.00 GiB"
    assert steps.missing == [text]


def messages_in_trace(finished, rank, processes):
    """Return the bytes of each message in a rank's trace, None where torch has them not."""
    content = gzip.decompress(finished.attempt.trace_of(rank).read_bytes())
    events = events_in_window(content, processes)
    contents = [content_of(event) for event in events if event.is_collective]
    return [content and content.bytes for content in contents]


def test_one_process_has_a_trace_without_collectives(run_cell):
    finished = run_cell(cpu_cell(protocol=Protocol.FULL, epochs=4), {"trace": True})
    assert (finished.code, finished.stderr) == (0, "")
    assert messages_in_trace(finished, 0, 1) == []


@pytest.mark.parametrize("strategy", EXCHANGING)
def test_trace_has_the_messages_of_the_instruments(run_cell, strategy):
    """As many iterations as the instrumented epoch has, of the same sizes."""
    cell = cpu_cell(gpus=2, strategy=strategy, protocol=Protocol.FULL, probe_s=0.0)
    finished = run_cell(cell, {"trace": True})
    assert finished.code == 0, finished.stderr
    for rank in finished.record.ranks:
        counted = rank.communication.messages
        traced = messages_in_trace(finished, rank.rank, 2)
        assert len(traced) == sum(message.count for message in counted) > 0
        if None not in traced:
            assert sum(traced) == sum(m.count * m.bytes for m in counted)
