"""The events in the measured window of a profiler's trace."""

import json
from pathlib import Path

import pytest
import torch

from hpml_jobs.worker.instruments.trace import (
    TraceEvent,
    events_in_window,
    record_numbers,
    start_profiler,
)


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
    """It would take 0.5 ms per operator, in a user's script too."""
    profiler = start_profiler(torch.device("cpu"))
    torch.zeros(1)
    profiler.stop()
    record_numbers(is_on=True)
    assert profiler.profiler._needs_processing
    assert "aten::zeros" in {each.name for each in profiler.events()}


TRACES = Path(__file__).parents[2] / "data" / "traces"


def trace_events(name):
    """Return the events of a trace that was made by hand after Kineto's format."""
    return json.loads((TRACES / name).read_text())["traceEvents"]


def test_gpu_window_is_the_host_s_not_from_first_to_last_kernel():
    """The same name is in the trace as gpu_user_annotation, here before the host's."""
    window = window_of(trace_events("cuda-ddp.json"))[0]
    assert window.end_s == pytest.approx(0.010)
    with pytest.raises(ValueError, match="no window"):
        window_of([event("hpml_jobs iterations", 0, 9, "gpu_user_annotation")])


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
