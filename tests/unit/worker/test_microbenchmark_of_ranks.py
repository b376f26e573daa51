"""The microbenchmark between real processes: its collectives, and that of a cell."""

import pytest
import torch

from tests.unit.worker.conftest import results_of_ranks


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
