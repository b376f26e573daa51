"""Each operator is a launch on a GPU, which a small model waits for: how many are ours."""

import pytest

from hpml_jobs.core.strategies import Strategy

from .conftest import results_of_ranks

PARALLEL = [name.value for name in Strategy if name.under_torchrun]


@pytest.mark.parametrize(("ranks", "names"), [(1, ["single"]), (2, PARALLEL)])
def test_iterations_dispatch_few_operators_beyond_a_bare_loop(
    ranks, names, rank_server
):
    module = "tests.unit.worker.operators"
    of_strategies = results_of_ranks(rank_server, module, ranks, *names)
    assert [*of_strategies] == names
    for counts in of_strategies.values():
        assert 0 < counts["timed"] <= 4
        assert counts["instrumented"] <= 3 * counts["messages"]
