"""One iteration per rank from kept traces, and traces that cannot be read."""

import gzip
import json
import os

import msgspec
import pytest
from matplotlib.colors import to_hex

from hpml_jobs.report.frame import style
from hpml_jobs.report.pictures import PLOTS
from hpml_jobs.report.profiler import timeline
from tests.unit.builders import lab_cell, lab_record

LENGTHS_MS = (50, 10, 12, 11, 10)
"""Iterations of rank 0; of all but the first and the last, 11 ms is the median."""


def event(name, start_ms, length_ms, cat="cpu_op"):
    times = {"ts": 1e3 * start_ms, "dur": 1e3 * length_ms}
    return {"ph": "X", "cat": cat, "name": name, **times}


def events(late_ms=0.0, clock_ms=0.0, *, on_gpu=False):
    """Return the events of a rank that begins its forward late, by a clock that is ahead."""
    result = [{"ph": "M", "name": "process_name"}, {"ph": "X", "name": 7, "ts": "text"}]
    start = clock_ms
    for length in LENGTHS_MS:
        loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        result.append(event(loader, start, 1, "user_annotation"))
        begin = start + 1 + late_ms
        if on_gpu:
            result.append(event("ampere_sgemm", begin, 4, "kernel"))
            result.append(event("ncclDevKernel_AllReduce", begin + 3, 2, "kernel"))
        else:
            result.append(event("aten::conv2d", begin, 2))
            result.append(event("autograd::engine::evaluate_function: Conv", begin + 2, 3))
            all_reduce_end = start + 9
            result.append(event("gloo:all_reduce", begin + 4, all_reduce_end - begin - 4))
            result.append(event("Optimizer.step#SGD.step", start + 9, 0.5, "user_annotation"))
        start += length
    return result


def keep_trace(builder, slug, rank, content):
    folder = builder.study.cell(slug).attempt("17_0-0").root
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"trace-rank{rank}.json.gz"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_bytes(gzip.compress(json.dumps({"traceEvents": content}).encode()))
    return path


@pytest.fixture
def slug(builder):
    """A cell of two ranks."""
    return builder.with_record(lab_record(lab_cell(2, 128), 20.0)).slug


def spans(axis, colour):
    """Return the (rank, start, end) in ms of what is drawn in a colour."""
    result = []
    for collection in axis.collections:
        if to_hex(collection.get_facecolor()[0]).upper() == colour:
            boxes = [path.get_extents() for path in collection.get_paths()]
            result += [(round((b.y0 + b.y1) / 2), b.x0, b.x1) for b in boxes]
    return [(rank, round(start, 3), round(end, 3)) for rank, start, end in result]


def test_timeline_draws_median_iteration_of_every_rank(builder, slug):
    keep_trace(builder, slug, 0, events())
    keep_trace(builder, slug, 1, events(late_ms=2))
    picture = PLOTS["timeline"](builder.collect())
    (axis,) = picture.figure.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["rank 0", "rank 1"]
    assert spans(axis, style.SKY) == [(0, 1, 3), (1, 3, 5)]
    assert spans(axis, style.BLUE) == [(0, 3, 6), (1, 5, 8)]
    assert spans(axis, style.RED) == [(0, 5, 9), (1, 7, 9)]
    assert axis.get_xlim() == (0, pytest.approx(11))
    assert "ddp 2-GPU b128: rank 0 11.0 ms, of it collectives 4.00 ms" in picture.alt
    assert "All ranks have one clock." in picture.caption


def test_timeline_of_several_hosts_is_aligned_at_last_collective(builder):
    record = lab_record(lab_cell(2, 128, nodes=2), 20.0)
    ranks = [msgspec.structs.replace(rank, host=f"gr00{rank.rank}.edu") for rank in record.ranks]
    slug = builder.with_record(msgspec.structs.replace(record, ranks=tuple(ranks))).slug
    keep_trace(builder, slug, 0, events())
    keep_trace(builder, slug, 1, events(late_ms=2, clock_ms=7_000))
    picture = PLOTS["timeline"](builder.collect())
    (axis,) = picture.figure.axes
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert labels == ["rank 0 on gr000", "rank 1 on gr001"]
    assert spans(axis, style.RED) == [(0, 5, 9), (1, 7, 9)]
    assert "aligned at the end of their last collective" in picture.caption


def test_timeline_on_gpu_shows_kernels_and_nccl(builder, slug):
    for rank in (0, 1):
        keep_trace(builder, slug, rank, events(on_gpu=True))
    (axis,) = PLOTS["timeline"](builder.collect()).figure.axes
    assert spans(axis, style.BLUE) == [(0, 1, 5), (1, 1, 5)]
    assert spans(axis, style.RED) == [(0, 4, 6), (1, 4, 6)]


def test_timeline_without_trace_is_none(builder, slug):
    assert PLOTS["timeline"](builder.collect()) is None


@pytest.mark.parametrize(
    "content",
    [
        b"no gzip",
        gzip.compress(b"[" * 100_000),
        gzip.compress(b'{"traceEvents": 7}'),
        gzip.compress(b'{"traceEvents": []}'),
        gzip.compress(b'{"traceEvents": []}')[:-9],
    ],
    ids=["text", "nested", "number", "empty", "cut"],
)
def test_timeline_of_unreadable_trace_is_none(builder, slug, content):
    keep_trace(builder, slug, 0, content)
    assert PLOTS["timeline"](builder.collect()) is None


def test_timeline_of_fifo_and_missing_rank_is_none(builder, slug):
    path = keep_trace(builder, slug, 0, events())
    assert PLOTS["timeline"](builder.collect()) is None  # rank 1 has none
    path.unlink()
    os.mkfifo(path)
    assert PLOTS["timeline"](builder.collect()) is None


def test_timeline_of_huge_trace_is_none(builder, slug, monkeypatch):
    monkeypatch.setattr(timeline, "TRACE_BYTES", 10_000)
    keep_trace(builder, slug, 0, gzip.compress(b'{"traceEvents": [' + b" " * 10**7 + b"]}"))
    assert PLOTS["timeline"](builder.collect()) is None


def test_timeline_draws_as_many_ranks_as_limits_allow(builder, slug, monkeypatch):
    monkeypatch.setattr(timeline, "RANKS", 1)
    keep_trace(builder, slug, 0, events())
    picture = PLOTS["timeline"](builder.collect())
    assert len(picture.figure.axes[0].get_yticklabels()) == 1
    assert "Not drawn: 1 more ranks" in picture.caption
