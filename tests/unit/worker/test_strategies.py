"""Placement, loader batch, and the gradient exchange of every strategy."""

from collections import Counter
from statistics import fmean

import pytest
import torch

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.worker.ddp import DDP
from hpml_jobs.worker.process_group import Placement, SingleProcess, read_placement
from hpml_jobs.worker.strategies import DP, STRATEGIES

from .conftest import cpu_cell, results_of_ranks


def test_every_strategy_has_a_class():
    assert set(STRATEGIES) == set(Strategy)


def test_plain_process_is_rank_0_of_1(monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert read_placement(cpu_cell()) == Placement(0, 0, 1)
    with pytest.raises(
        HpmlError, match=r"gpus=4 needs 4 process\(es\), but 1 were started"
    ):
        read_placement(cpu_cell(gpus=4))


def test_torchrun_environment_gives_rank_and_size(monkeypatch):
    for name, value in {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}.items():
        monkeypatch.setenv(name, value)
    assert read_placement(cpu_cell(gpus=8)) == Placement(5, 1, 8)


def test_dp_loads_batches_for_all_its_devices():
    gpus = tuple(torch.device("cuda", number) for number in range(4))
    cell = cpu_cell(gpus=4, strategy=Strategy.DP, device=Device.CUDA)
    assert DP(cell, Placement(0, 0, 1), gpus).loader_batch == 256
    assert SingleProcess(cpu_cell(), Placement(0, 0, 1), gpus[:1]).loader_batch == 64


def test_ddp_on_gpus_settles_until_it_no_longer_times_itself():
    """In its first 10 iterations DDP waits for the device to time itself."""
    placement = Placement(0, 0, 2)
    gpu = DDP(
        cpu_cell(gpus=2, device=Device.CUDA), placement, (torch.device("cuda", 0),)
    )
    cpu = DDP(cpu_cell(gpus=2), placement, (torch.device("cpu"),))
    assert (gpu.settling_passes, cpu.settling_passes) == (11, 2)


BY_HAND = {"allreduce", "allreduce_flat", "gather_scatter"}
TORCHS = {"ddp", "zero1", "fsdp"}
PARAMETERS = {"0.weight": 128, "0.bias": 16, "2.weight": 64, "2.bias": 4}
ELEMENTS = sum(PARAMETERS.values())


@pytest.fixture(scope="module", params=[pytest.param(2, marks=pytest.mark.long), 4])
def results(request, rank_server):
    """Results of every strategy with 2 and with 4 processes under gloo."""
    module = "tests.unit.worker.gradient_exchange"
    names = [name for name in Strategy if name.under_torchrun]
    return request.param, results_of_ranks(rank_server, module, request.param, *names)


@pytest.fixture(scope="module")
def strategy_results(results):
    """Results of the strategies only."""
    processes, labels = results
    others = ("adamw", "gpt ")
    return processes, {
        name: of for name, of in labels.items() if not name.startswith(others)
    }


def test_parameters_equal_on_all_ranks_and_in_one_process(strategy_results):
    processes, labels = strategy_results
    assert {name.removesuffix(" instrumented") for name in labels} == BY_HAND | TORCHS
    for name, ranks in labels.items():
        assert len(ranks) == processes
        assert len({rank["parameters"] for rank in ranks}) == 1, name
        assert max(rank["error"] for rank in ranks) < 1e-12, name


def test_adamw_steps_equal_one_process_under_every_strategy(results):
    processes, labels = results
    ranks = labels["adamw"]
    for name in TORCHS:
        assert max(rank[name]["error"] for rank in ranks) < 1e-9, name
        assert len({rank[name]["parameters"] for rank in ranks}) == 1, name
    assert len(ranks) == processes


def state_bytes(labels, name):
    """The bytes of each rank's optimizer under a strategy: of SGD, of AdamW."""
    sgd = [rank["optimizer_bytes"] for rank in labels[name]]
    return sgd, [rank[name]["optimizer_bytes"] for rank in labels["adamw"]]


def test_optimizer_state_has_two_moments_of_what_a_rank_updates(results):
    """SGD keeps one value (8 bytes here) for each element, AdamW two and a count (4 bytes)."""
    processes, labels = results
    sgd, adamw = state_bytes(labels, "ddp")
    whole, counts = 8 * ELEMENTS, 4 * len(PARAMETERS)
    assert sgd == [whole] * processes
    assert adamw == [2 * whole + counts] * processes


def test_instrumentation_does_not_change_parameters(strategy_results):
    _, labels = strategy_results
    for name in (*BY_HAND, *TORCHS):
        instrumented = labels[f"{name} instrumented"][0]["parameters"]
        assert instrumented == labels[name][0]["parameters"], name


def test_buffers_differ_by_rank_until_ddp_broadcasts_them(strategy_results):
    """Each rank keeps its own buffers; ddp and zero1 broadcast them at the next forward."""
    processes, labels = strategy_results
    for name, ranks in labels.items():
        after = {rank["buffers"] for rank in ranks}
        assert len(after) == processes, name
        later = {rank["buffers_after_forward"] for rank in ranks}
        assert len(later) == (1 if name.startswith(("ddp", "zero1")) else processes), (
            name
        )


def test_messages_are_those_the_strategy_must_send(strategy_results):
    _, labels = strategy_results
    steps, flat = 2, ["all_reduce", "gradients", ELEMENTS, 8 * ELEMENTS]
    for rank in labels["allreduce_flat instrumented"]:
        assert rank["sent"] == [[*flat, steps]]
    for rank in labels["ddp instrumented"]:
        assert (
            sum(size * count for *_, size, count in rank["sent"])
            == steps * 8 * ELEMENTS
        )
        assert {kind for kind, *_ in rank["sent"]} == {"all_reduce"}
    each = [[n, 8 * n, steps] for n in PARAMETERS.values()]
    for rank in labels["allreduce instrumented"]:
        assert rank["sent"] == [["all_reduce", "gradients", *rest] for rest in each]
    for rank in labels["gather_scatter instrumented"]:
        kinds = [
            [kind, "gradients", *rest]
            for rest in each
            for kind in ("gather", "scatter")
        ]
        assert rank["sent"] == kinds
        assert 0 < rank["longest_s"] < 60


def test_gpt_loss_equals_one_process_on_global_batch(results):
    _, labels = results
    for name in BY_HAND | TORCHS:
        ranks = labels[f"gpt {name}"]
        expected = ranks[0]["expected"]
        assert expected[-1] < expected[0]
        of_steps = zip(*(rank["losses"] for rank in ranks), strict=True)
        means = [fmean(losses) for losses in of_steps]
        assert means == pytest.approx(expected, rel=1e-12), name


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
    for name in ("zero1", "fsdp"):  # the whole state is gathered on every rank
        assert len({rank["state"] for rank in labels[name]}) == 1, name
