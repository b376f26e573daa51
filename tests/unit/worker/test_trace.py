"""The events in the measured window of a profiler's trace."""

import gzip
import json
from pathlib import Path

import pytest
import torch

from hpml_jobs.worker.probes import start_profiler
from tests.unit.worker.traces import TraceEvent, content_of, events_in_window


def event(name, start, end, category="cpu_op", **args):
    """Return a complete event of a trace; start and end are in microseconds."""
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "ts": start,
        "dur": end - start,
        "args": args,
    }


WINDOW = event("hpml_jobs iterations", 1000, 11_000, "user_annotation")


def window_of(events, processes=1):
    return events_in_window(json.dumps({"traceEvents": events}).encode(), processes)


def test_stopped_profiler_has_made_no_objects_of_its_events():
    """It would take 0.5 ms per operator."""
    profiler = start_profiler(torch.device("cpu"))
    torch.zeros(1)
    profiler.stop()
    assert profiler.profiler._needs_processing
    assert "aten::zeros" in {each.name for each in profiler.events()}


@pytest.mark.parametrize(
    ("name", "details", "kind"),
    [
        ("gloo:all_reduce", {}, "all_reduce"),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(x)", {}, "reduce_scatter"),
        (
            "ncclDevKernel_AllGather_RING_LL(x)",
            {"Collective name": "_allgather_base"},
            "all_gather",
        ),
        ("ncclSymkDevKernel_AllReduce_AGxLL_R_sum_bf16(x)", {}, "all_reduce"),
        ("ncclDevKernel_SendRecv(x)", {"Collective name": "scatter"}, "scatter"),
        ("ncclDevKernel_SendRecv(x)", {}, None),
    ],
)
def test_event_kind_is_by_torch_then_by_kernel(name, details, kind):
    assert TraceEvent("kernel", name, 0.0, 1.0, details).kind == kind


def test_trace_without_measured_window_is_refused():
    with pytest.raises(ValueError, match="no window"):
        window_of([event("aten::mm", 0, 1)])


RECORDED = Path(__file__).parents[2] / "data" / "recorded"


def recorded(name, window):
    """Return a real GPU's collectives; the annotation with this name is the measured window."""
    content = (RECORDED / name).read_bytes()
    raw = json.loads(gzip.decompress(content) if name.endswith(".gz") else content)
    marked = [
        e | {"name": WINDOW["name"]} if e["name"] == window else e
        for e in raw["traceEvents"]
    ]
    return [event for event in window_of(marked) if event.is_collective]


def test_recorded_iteration_of_ddp_has_the_bytes_of_resnet50():
    """Its gradients are 25,557,032 floats, its buffers 2 x 26,560 floats and 53 whole numbers."""
    sizes = {"all_reduce": [], "broadcast": []}
    for event in recorded("a100-ddp-resnet50.json.gz", "ProfilerStep#5"):
        sizes[event.kind].append(content_of(event).bytes)
    assert (len(sizes["all_reduce"]), sum(sizes["all_reduce"])) == (5, 4 * 25_557_032)
    assert sorted(sizes["broadcast"]) == [53 * 8, 53_120 * 4]


def test_recorded_all_gather_has_the_bytes_of_all_ranks():
    """The kernel of NCCL 2.27 for 8 ranks: 8 x 25,136 numbers of two bytes."""
    window = "execute_context_1(888_788544)_generation_0(0)"
    (gathered,) = recorded("b200-all-gather.json", window)
    assert gathered.kind == "all_gather"
    assert content_of(gathered).bytes == 8 * 25_136 * 2


@pytest.mark.parametrize("name", ["h100-ddp", "h100-single"])
def test_recorded_iteration_of_one_process_has_no_kernel_of_nccl(name):
    assert recorded(f"{name}-resnet18.json.gz", WINDOW["name"]) == []


@pytest.mark.parametrize(
    ("collective", "dtype", "size"),
    [("_allgather_base", "BFloat16", 4_000), ("_reduce_scatter_base", "Half", 2_000)],
)
def test_message_has_the_bytes_of_the_whole_tensor(collective, dtype, size):
    """torch reports the share of a rank and the whole; here the output is the larger one."""
    details = {"Collective name": collective, "dtype": dtype}
    details |= {"In msg nelems": 1_000, "Out msg nelems": 2_000}
    sent = TraceEvent("kernel", "ncclDevKernel", 0.0, 1.0, details)
    assert content_of(sent).bytes == size


def test_gloo_all_gather_has_the_bytes_of_all_shares():
    details = {"Input Dims": [[1000]], "Input type": ["float"]}
    sent = TraceEvent("cpu_op", "gloo:all_gather", 0.0, 1.0, details, processes=4)
    assert content_of(sent).bytes == 16_000
