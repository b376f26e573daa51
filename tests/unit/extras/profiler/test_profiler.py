"""Computation, communication, overlap and idle time in the profiler's trace."""

import gzip
import json
from pathlib import Path

import pytest
import torch

from hpml_jobs.core.measurements import CollectiveKind, Epoch, Purpose, Role
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.training_path import Precision, TrainingPath
from hpml_jobs.extras.profiler.iterations import (
    ProfilerError,
    summarize_trace,
    without_overflow_messages,
)
from hpml_jobs.worker.epochs import EpochResult
from hpml_jobs.worker.instruments.collectives import Ledger
from hpml_jobs.worker.instruments.timing import HostClock, IterationTimes
from tests.unit.worker.conftest import cpu_cell
from tests.unit.worker.test_trace import WINDOW, event, trace_events, window_of


def epoch_result(*sizes):
    """Return an epoch of two iterations with recorded messages of these numbers of elements."""
    ledger = Ledger(HostClock())
    for elements in sizes:
        ledger.end(
            ledger.begin(
                CollectiveKind.ALL_REDUCE, Purpose.GRADIENTS, torch.zeros(elements)
            )
        )
    epoch = Epoch(
        role=Role.PLAIN,
        epoch_s=1,
        stall_s=0,
        iterations=2,
        samples=2,
        loss=1,
        accuracy=0,
    )
    return EpochResult(
        epoch, IterationTimes([], [], 0), torch.zeros(2), [], ledger=ledger
    )


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
    summary = summarize_trace(window_of(trace), epoch_result(1000, 10), on_cuda=False)
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
    summary = summarize_trace(window_of(trace), epoch_result(7), on_cuda=True)
    assert summary.compute_s == pytest.approx(0.0025)
    assert summary.comm_s == pytest.approx(0.003)
    assert summary.overlap_s == pytest.approx(0.001)
    assert summary.idle_s == pytest.approx(0.0055)
    assert (summary.messages, summary.message_bytes) == (1, None)


RECORDED = Path(__file__).parents[3] / "data" / "recorded"


def recorded(name, window):
    """Return a real GPU's events; the annotation with this name is the measured window."""
    content = (RECORDED / name).read_bytes()
    raw = json.loads(gzip.decompress(content) if name.endswith(".gz") else content)[
        "traceEvents"
    ]
    marked = [e | {"name": WINDOW["name"]} if e["name"] == window else e for e in raw]
    return window_of(marked)


def test_recorded_iteration_of_ddp_has_the_bytes_of_resnet50():
    """Its gradients are 25,557,032 floats, its buffers 2 x 26,560 floats and 53 whole numbers."""
    events = recorded("a100-ddp-resnet50.json.gz", "ProfilerStep#5")
    summary = summarize_trace(events, epoch_result(), on_cuda=True)
    reduced, sent = summary.collectives
    assert (reduced.kind, reduced.messages, reduced.message_bytes) == (
        *("all_reduce", 5, 4 * 25_557_032),
    )
    assert (sent.kind, sent.messages, sent.message_bytes) == (
        "broadcast",
        2,
        53_120 * 4 + 53 * 8,
    )
    # one stream: their sum
    assert reduced.seconds == pytest.approx(12.261533e-3, abs=1e-9)
    assert summary.comm_s == pytest.approx(reduced.seconds + sent.seconds)
    assert summary.window_s == pytest.approx(0.219727, abs=1e-6)
    total = summary.compute_s + summary.comm_s - summary.overlap_s + summary.idle_s
    assert total == pytest.approx(summary.window_s)
    assert 0 < summary.overlap_s < summary.comm_s


def test_recorded_all_gather_has_the_bytes_of_all_ranks():
    """The kernel of NCCL 2.27 for 8 ranks: 8 x 25,136 numbers of two bytes."""
    events = recorded(
        "b200-all-gather.json", "execute_context_1(888_788544)_generation_0(0)"
    )
    (gathered,) = summarize_trace(events, epoch_result(), on_cuda=True).collectives
    assert (gathered.kind, gathered.messages) == ("all_gather", 1)
    assert gathered.message_bytes == 8 * 25_136 * 2
    assert gathered.seconds == pytest.approx(21.953e-6, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "gpu_s", "window_s"),
    [
        ("h100-ddp-resnet18.json.gz", 7.557011e-3, 20.181785e-3),
        ("h100-single-resnet18.json.gz", 7.264658e-3, 22.090969e-3),
    ],
)
def test_recorded_iteration_of_one_process_has_no_kernel_of_nccl(name, gpu_s, window_s):
    """One stream: the GPU is busy for the sum of its kernels and copies, up to their overlap."""
    summary = summarize_trace(
        recorded(name, WINDOW["name"]), epoch_result(), on_cuda=True
    )
    assert (summary.messages, summary.comm_s, summary.collectives) == (0, 0.0, ())
    assert summary.window_s == pytest.approx(window_s)
    assert summary.compute_s == pytest.approx(gpu_s, rel=0.003)
    assert summary.idle_s == pytest.approx(window_s - summary.compute_s)


def ddp_epoch():
    """Return two iterations of ddp on a GPU: each call is 20 us longer than NCCL's kernels."""
    ledger = Ledger(HostClock())
    for shift in (0, 4_500):
        for kind, purpose, elements, dtype, start, end in (
            (
                CollectiveKind.BROADCAST,
                Purpose.BUFFERS,
                9_600,
                torch.float32,
                1_795,
                1_850,
            ),
            (CollectiveKind.BROADCAST, Purpose.BUFFERS, 20, torch.int64, 1_850, 1_890),
            (
                CollectiveKind.ALL_REDUCE,
                Purpose.GRADIENTS,
                2_365_450,
                torch.float32,
                4_480,
                5_200,
            ),
            (
                CollectiveKind.ALL_REDUCE,
                Purpose.GRADIENTS,
                8_808_512,
                torch.float32,
                5_480,
                5_900,
            ),
        ):
            tensor = torch.empty(elements, dtype=dtype, device="meta")
            collective = ledger.begin(kind, purpose, tensor)
            collective.start, collective.end = (
                1_000 * (start + shift),
                1_000 * (end + shift),
            )
    return epoch_result()._replace(ledger=ledger)


def test_gpu_trace_has_time_count_and_bytes_by_collective():
    events = window_of(trace_events("cuda-ddp.json"))
    summary = summarize_trace(events, ddp_epoch(), on_cuda=True)
    times_s = (summary.compute_s, summary.comm_s, summary.overlap_s, summary.idle_s)
    assert times_s == pytest.approx((7.6e-3, 2.27e-3, 1.4e-3, 1.53e-3))
    reduced, sent = summary.collectives
    assert (reduced.kind, sent.kind) == ("all_reduce", "broadcast")
    assert (reduced.seconds, reduced.instruments_s) == pytest.approx((2.2e-3, 2.28e-3))
    assert (sent.seconds, sent.instruments_s) == pytest.approx((70e-6, 190e-6))
    assert reduced.message_bytes == reduced.instruments_bytes == 2 * 44_695_848
    assert sent.message_bytes == sent.instruments_bytes == 2 * 38_560
    assert (reduced.messages, sent.messages) == (4, 4)
    assert summary.message_bytes == 2 * (44_695_848 + 38_560)


def test_gpu_trace_without_kernels_is_missing_not_the_host_s():
    events = window_of(trace_events("cuda-no-device-events.json"))
    with pytest.raises(
        ProfilerError, match="CUPTI gave no events of the GPU: it is missing, not"
    ):
        summarize_trace(events, ddp_epoch(), on_cuda=True)


@pytest.mark.parametrize(
    ("collective", "dtype", "size"),
    [("_allgather_base", "BFloat16", 4_000), ("_reduce_scatter_base", "Half", 2_000)],
)
def test_message_has_the_bytes_of_the_whole_tensor(collective, dtype, size):
    """torch reports the share of a rank and the whole; here the output is the larger one."""
    details = {"Collective name": collective, "dtype": dtype}
    details |= {"In msg nelems": 1_000, "Out msg nelems": 2_000}
    events = [
        event("hpml_jobs iterations", 0, 9, "user_annotation"),
        event("ncclDevKernel", 1, 2, "kernel", **details),
    ]
    summary = summarize_trace(window_of(events), epoch_result(), on_cuda=True)
    assert summary.message_bytes == size


def test_gloo_all_gather_has_the_bytes_of_all_shares():
    events = [WINDOW, event("gloo:all_gather", 2000, 3000, **shapes(1000))]
    summary = summarize_trace(window_of(events, 4), epoch_result(), on_cuda=False)
    assert summary.message_bytes == 16_000


@pytest.mark.parametrize(
    ("strategy", "precision", "messages"),
    [("fsdp", "fp16", 1), ("fsdp", "bf16", 2), ("zero1", "fp16", 2)],
)
def test_message_of_overflows_is_not_among_fsdp_s(strategy, precision, messages):
    path = TrainingPath(precision=Precision(precision))
    cell = cpu_cell(gpus=2, strategy=Strategy(strategy), device=Device.CUDA, path=path)
    names = (
        "ncclDevKernel_AllGather_RING_LL(x)",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
    )
    events = window_of([WINDOW, *(event(name, 2000, 3000, "kernel") for name in names)])
    own = without_overflow_messages(events, cell)
    assert summarize_trace(own, epoch_result(), on_cuda=True).messages == messages


def shapes(elements):
    return {"Input Dims": [[elements]], "Input type": ["float"]}
