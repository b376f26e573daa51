"""The profiler's view: what of a trace is computation, communication, overlap and idle."""

import pytest
import torch

from hpml_jobs.core.measurements import Epoch
from hpml_jobs.worker.epochs import Ran
from hpml_jobs.worker.instruments.collectives import Ledger
from hpml_jobs.worker.instruments.profiler import events_of, summary
from hpml_jobs.worker.instruments.timing import HostClock, Times


def event(name: str, start: float, end: float, category: str = "cpu_op", **args: object) -> dict:
    """A complete event of a trace, from start to end microseconds."""
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": end - start, "args": args}


WINDOW = event("hpml_jobs iterations", 1000, 11_000, "user_annotation")


def ran(*sizes: int) -> Ran:
    """An epoch of two iterations in which our instruments noted so many fp32 elements each."""
    ledger = Ledger(HostClock())
    for elements in sizes:
        ledger.end(ledger.begin("all_reduce", "gradients", torch.zeros(elements)))
    epoch = Epoch(role="plain", epoch_s=1, stall_s=0, iterations=2, samples=2, loss=1, accuracy=0)
    return Ran(epoch, Times([], [], 0), torch.zeros(2), [], ledger=ledger)


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
    found = summary(events_of(trace), ran(1000, 10))
    assert found.window_s == pytest.approx(0.010)
    assert found.compute_s == pytest.approx(0.0025)
    assert found.comm_s == pytest.approx(0.005)
    assert found.overlap_s == pytest.approx(0.0015)
    assert found.idle_s == pytest.approx(0.004)
    total = found.compute_s + found.comm_s - found.overlap_s + found.idle_s
    assert total == pytest.approx(found.window_s)
    assert (found.messages, found.message_bytes) == (2, 4040)
    assert (found.instruments_messages, found.instruments_bytes) == (2, 4040)


def test_gpu_trace_counts_device_events_only():
    trace = [
        WINDOW,
        event("aten::conv2d", 1000, 10_000),
        event("gloo:all_reduce", 1000, 10_000),
        event("sm90_gemm", 2000, 4000, "kernel"),
        event("Memcpy HtoD", 1500, 2000, "gpu_memcpy"),
        event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 3000, 6000, "kernel"),
    ]
    found = summary(events_of(trace), ran(7))
    assert found.compute_s == pytest.approx(0.0025)
    assert found.comm_s == pytest.approx(0.003)
    assert found.overlap_s == pytest.approx(0.001)
    assert found.idle_s == pytest.approx(0.0055)
    assert (found.messages, found.message_bytes) == (1, None)


def test_trace_without_measured_window_is_refused():
    with pytest.raises(ValueError, match="no window"):
        events_of([event("aten::mm", 0, 1)])


def shapes(elements: int) -> dict[str, object]:
    return {"Input Dims": [[elements]], "Input type": ["float"]}
