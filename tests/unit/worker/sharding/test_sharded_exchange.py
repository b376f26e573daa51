"""What zero1 and fsdp send, wait for and keep, between real processes."""

from collections import Counter

import pytest

from tests.unit.worker.conftest import results_of_ranks
from tests.unit.worker.test_strategies import ELEMENTS, PARAMETERS, state_bytes
from tests.unit.worker.test_training_paths import GRADIENT_BYTES

NAMES = ("zero1", "fsdp")


@pytest.fixture(scope="module", params=[pytest.param(2, marks=pytest.mark.long), 4])
def results(request, rank_server):
    """Results of the two strategies with 2 and with 4 processes under gloo."""
    module = "tests.unit.worker.gradient_exchange"
    return request.param, results_of_ranks(rank_server, module, request.param, *NAMES)


def test_optimizer_state_of_a_rank_is_that_of_its_share(results):
    """SGD keeps one value (8 bytes here) for each element, AdamW two and a count (4 bytes)."""
    processes, labels = results
    whole, counts = 8 * ELEMENTS, 4 * len(PARAMETERS)
    sgd, adamw = state_bytes(labels, "zero1")
    assert (sum(sgd), sum(adamw)) == (whole, 2 * whole + counts)
    sgd, adamw = state_bytes(labels, "fsdp")
    assert sgd == [whole / processes] * processes
    assert adamw == [2 * whole / processes + counts] * processes


def test_sharded_messages_are_exactly_those_of_shapes(results):
    processes, labels = results
    steps = 2
    for name in ("zero1", "fsdp"):
        for rank in labels[f"{name} instrumented"]:
            sent = Counter()
            for kind, purpose, _, size, count in rank["sent"]:
                sent[kind, purpose] += size * count
            for kind, purpose, size in rank["expected"]:
                assert sent[kind, purpose] == steps * size, (name, kind)
    # both linear layers divide by 2 and 4: no padding, gathered in forward and in backward
    expected = {tuple(volume) for volume in labels["fsdp"][0]["expected"]}
    gathered, reduced = 2 * 8 * ELEMENTS, 8 * ELEMENTS
    assert expected == {
        ("all_gather", "parameters", gathered),
        ("reduce_scatter", "gradients", reduced),
    }
    messages = labels["zero1 instrumented"][0]["sent"]
    assert (
        sum(count for kind, *_, count in messages if kind == "broadcast")
        == steps * processes
    )


def test_gloo_ranks_wait_for_every_collective_of_fsdp(results):
    """gloo blocks the computing thread: each collective is inside a stamped wait."""
    _, labels = results
    for rank in labels["fsdp instrumented"]:
        # 2 steps: before forward and before backward of two layers and the model, their 2
        # reduce-scatters, and before that of the second (the first one's input has no gradient)
        assert rank["waits"] == 2 * (3 + 3 + 2 + 1)
        assert all(rank["waited_for"])
    assert {rank["waits"] for rank in labels["zero1 instrumented"]} == {0}


def test_sharded_ranks_keep_parts_that_add_up(results):
    processes, labels = results
    assert sum(rank["held"] for rank in labels["zero1"]) == ELEMENTS
    assert [rank["held"] for rank in labels["fsdp"]] == [
        ELEMENTS / processes
    ] * processes
    for name in NAMES:  # the whole state is gathered on every rank
        assert len({rank["state"] for rank in labels[name]}) == 1, name


def test_fsdp_gathers_in_forward_and_backward_of_every_batch(rank_server):
    """In bf16 a parameter has two bytes on the way, and its gradient four, as always."""
    results = results_of_ranks(
        rank_server, "tests.unit.worker.path_training", 2, "fsdp"
    )
    for path, result in results["fsdp"][0].items():
        _, (_, _, batches) = result["counted"]
        whole = GRADIENT_BYTES // 2 if "bf16" in path else GRADIENT_BYTES
        assert result["gathered"] == 2 * batches * whole, path
