"""Computation, communication, overlap and idle time in the profiler's trace."""

import pytest
import torch

from hpml_jobs.core.measurements import CollectiveKind, Epoch, Purpose, Role
from hpml_jobs.worker.epochs import EpochResult
from hpml_jobs.worker.instruments.collectives import Ledger
from hpml_jobs.worker.instruments.profiler import events_in_window, summarize_trace
from hpml_jobs.worker.instruments.timing import HostClock, IterationTimes


def event(name, start, end, category="cpu_op", **args):
    """Return a complete event of a trace; start and end are in microseconds."""
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": end - start, "args": args}


WINDOW = event("hpml_jobs iterations", 1000, 11_000, "user_annotation")


def epoch_result(*sizes):
    """Return an epoch of two iterations with recorded messages of these numbers of elements."""
    ledger = Ledger(HostClock())
    for elements in sizes:
        ledger.end(
            ledger.begin(CollectiveKind.ALL_REDUCE, Purpose.GRADIENTS, torch.zeros(elements))
        )
    epoch = Epoch(
        role=Role.PLAIN, epoch_s=1, stall_s=0, iterations=2, samples=2, loss=1, accuracy=0
    )
    return EpochResult(epoch, IterationTimes([], [], 0), torch.zeros(2), [], ledger=ledger)


def test_cpu_trace_splits_operators_and_gloo_communication():
    trace = [
        event("aten::conv2d", 0, 3000),  # 2 ms of it in the window
        event("aten::convolution", 1500, 2500),  # inside the first
        WINDOW,
        event("gloo:all_reduce", 2000, 6000, **shapes(1000)),
        event("aten::mm", 5000, 5500),
        event("gloo:all_reduce", 7000, 8000, **shapes(10)),
        event("c10d::allreduce_", 2000, 9000),
        {"ph": "i", "name": "mark", "ts": 5},
    ]
    summary = summarize_trace(events_in_window(trace), epoch_result(1000, 10), on_cuda=False)
    assert summary.window_s == pytest.approx(0.010)
    assert summary.compute_s == pytest.approx(0.0025)
    assert summary.comm_s == pytest.approx(0.005)
    assert summary.overlap_s == pytest.approx(0.0015)
    assert summary.idle_s == pytest.approx(0.004)
    total = summary.compute_s + summary.comm_s - summary.overlap_s + summary.idle_s
    assert total == pytest.approx(summary.window_s)
    assert (summary.messages, summary.message_bytes) == (2, 4040)
    assert (summary.instruments_messages, summary.instruments_bytes) == (2, 4040)


def test_gpu_trace_counts_device_events_only():
    trace = [
        WINDOW,
        event("aten::conv2d", 1000, 10_000),
        event("gloo:all_reduce", 1000, 10_000),
        event("sm90_gemm", 2000, 4000, "kernel"),
        event("Memcpy HtoD", 1500, 2000, "gpu_memcpy"),
        event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 3000, 6000, "kernel"),
    ]
    summary = summarize_trace(events_in_window(trace), epoch_result(7), on_cuda=True)
    assert summary.compute_s == pytest.approx(0.0025)
    assert summary.comm_s == pytest.approx(0.003)
    assert summary.overlap_s == pytest.approx(0.001)
    assert summary.idle_s == pytest.approx(0.0055)
    assert (summary.messages, summary.message_bytes) == (1, None)


def test_trace_without_measured_window_is_refused():
    with pytest.raises(ValueError, match="no window"):
        events_in_window([event("aten::mm", 0, 1)])


def shapes(elements):
    return {"Input Dims": [[elements]], "Input type": ["float"]}
