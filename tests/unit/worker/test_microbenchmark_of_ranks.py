"""The microbenchmark between real processes: its collectives, and that of a cell."""

import pytest
import torch

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.measurements import CollectiveKind
from tests.unit.worker.conftest import EXCHANGING, cpu_cell, results_of_ranks


@pytest.fixture(scope="module", params=[pytest.param(2, marks=pytest.mark.long), 4])
def results(request, rank_server):
    """Results of 2 and of 4 processes under gloo."""
    module = "tests.unit.worker.collectives_of_ranks"
    return request.param, results_of_ranks(rank_server, module, request.param)


def test_each_measured_collective_gives_its_result(results):
    processes, ranks = results
    whole, share = torch.arange(3.0 * processes), torch.arange(3.0)
    total = processes * whole + 100 * sum(range(processes))
    gathered = torch.cat([share + 100 * rank for rank in range(processes)])
    for rank, of_rank in enumerate(ranks):
        assert of_rank["results"] == {
            "all_reduce": total.tolist(),
            "all_gather": gathered.tolist(),
            "reduce_scatter": total[3 * rank : 3 * rank + 3].tolist(),
            "broadcast": whole.tolist(),
        }


def test_microbenchmark_times_every_collective_alike(results):
    """All ranks have the same times; on the CPU no launch can be late."""
    processes, ranks = results
    benchmarks = [of_rank["microbenchmark"] for of_rank in ranks]
    points = benchmarks[0]["points"]
    kinds = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
    expected = [
        (kind, size, sent) for kind in kinds for size, sent in ((1024, 0), (4000, 1))
    ]
    assert [
        (point["kind"], point["bytes"], point["sent"]) for point in points
    ] == expected
    assert [benchmark["points"] for benchmark in benchmarks] == processes * [points]
    assert {(point["trials"], point["launched_late"]) for point in points} == {
        (20, None)
    }
    assert all(0 < point["min_s"] <= point["median_s"] for point in points)


@pytest.mark.parametrize("strategy", EXCHANGING)
def test_cell_measures_the_sizes_that_it_sends(run_cell, strategy):
    settings = {"protocol": Protocol.FULL, "epochs": 3, "probe_s": 5.0}
    finished = run_cell(cpu_cell(gpus=2, strategy=strategy, **settings))
    assert finished.code == 0, finished.stderr
    record = finished.record
    benchmark, communication = record.microbenchmark, record.ranks[0].communication
    windows_s = [rank.microbenchmark_scheduling.window_s for rank in record.ranks]
    assert windows_s[0] > benchmark.seconds  # which are those of rank 0
    assert min(windows_s) > 0
    kind = communication.gradient_kind or CollectiveKind.ALL_REDUCE
    sizes = {point.bytes: point for point in benchmark.points_of(kind)}
    assert {point.trials for point in sizes.values()} == {20}
    cell_sizes = {m.bytes for m in communication.messages if m.kind is kind}
    assert {size for size, point in sizes.items() if point.sent} == cell_sizes
    # 5 seconds do not suffice
    assert max(sizes) < benchmark.largest_asked_bytes == 2**28
    point = sizes[1024]
    assert (
        point.min_s
        <= point.lower_quartile_s
        <= point.median_s
        <= point.upper_quartile_s
    )
    assert 0 <= point.delayed <= 20


def test_one_process_has_no_microbenchmark(run_here):
    record = run_here(cpu_cell(protocol=Protocol.FULL, epochs=3)).record
    assert record.microbenchmark is None
    assert record.ranks[0].microbenchmark_scheduling is None
