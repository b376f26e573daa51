"""The events in the measured window of a profiler's trace."""

import gzip
import json
from pathlib import Path

import torch

from hpml_jobs.worker.probes import start_profiler
from tests.unit.worker.traces import content_of, events_in_window


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
