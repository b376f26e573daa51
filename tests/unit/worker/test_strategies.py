"""Which process this is, what every strategy takes per iteration, and how gradients meet."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hpml_jobs.core.cell import Device, Strategy
from hpml_jobs.errors import HpmlError
from hpml_jobs.worker.strategies import DP, STRATEGIES, Place, Single, this_place

from .conftest import cpu_cell


def test_every_strategy_has_a_class():
    assert set(STRATEGIES) == set(Strategy)


def test_plain_process_is_rank_0_of_1(monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert this_place(cpu_cell()) == Place(0, 0, 1)
    with pytest.raises(HpmlError, match=r"gpus=4 is 4 process\(es\), but 1 were started"):
        this_place(cpu_cell(gpus=4))


def test_torchrun_environment_gives_rank_and_size(monkeypatch):
    for name, value in {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}.items():
        monkeypatch.setenv(name, value)
    assert this_place(cpu_cell(gpus=8)) == Place(5, 1, 8)


def test_dp_loads_batches_for_all_its_devices():
    cards = tuple(torch.device("cuda", number) for number in range(4))
    cell = cpu_cell(gpus=4, strategy=Strategy.DP, device=Device.CUDA)
    assert DP(cell, Place(0, 0, 1), cards).loader_batch == 256
    assert Single(cpu_cell(), Place(0, 0, 1), cards[:1]).loader_batch == 64


BY_HAND = {"allreduce", "allreduce_flat", "gather_scatter"}
PARAMETERS = {"0.weight": 128, "0.bias": 16, "2.weight": 64, "2.bias": 4}
ELEMENTS = sum(PARAMETERS.values())


@pytest.fixture(scope="module", params=[2, 4])
def everything(request) -> tuple[int, dict]:
    """What every strategy, and SyncBatchNorm, did with 2 and with 4 real processes under gloo."""
    torchrun = ["torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    command = [sys.executable, "-m", *torchrun, f"--nproc-per-node={request.param}"]
    done = subprocess.run(
        [*command, "-m", "tests.unit.worker.gradient_exchange"],
        cwd=Path(__file__).parents[3],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return request.param, json.loads(done.stdout)


@pytest.fixture(scope="module")
def exchanged(everything) -> tuple[int, dict]:
    """The strategies' part of it."""
    processes, found = everything
    return processes, {name: ranks for name, ranks in found.items() if name != "SyncBatchNorm"}


def test_syncbn_equals_one_process_on_global_batch(everything):
    _, found = everything
    assert max(rank["off"] for rank in found["SyncBatchNorm"]) < 1e-12
    assert len({rank["buffers"] for rank in found["SyncBatchNorm"]}) == 1


def test_parameters_equal_on_all_ranks_and_in_one_process(exchanged):
    processes, found = exchanged
    assert {name.removesuffix(" observed") for name in found} == BY_HAND | {"ddp"}
    for name, ranks in found.items():
        assert len(ranks) == processes
        assert len({rank["parameters"] for rank in ranks}) == 1, name
        assert max(rank["off"] for rank in ranks) < 1e-12, name


def test_instrumentation_does_not_change_parameters(exchanged):
    _, found = exchanged
    for name in (*BY_HAND, "ddp"):
        watched = found[f"{name} observed"][0]["parameters"]
        assert watched == found[name][0]["parameters"], name


def test_buffers_differ_by_rank_until_ddp_broadcasts_them(exchanged):
    """Each rank keeps its own buffers; ddp broadcasts them at the next forward."""
    processes, found = exchanged
    for name, ranks in found.items():
        after = {rank["buffers"] for rank in ranks}
        assert len(after) == processes, name
        later = {rank["buffers_after_forward"] for rank in ranks}
        assert len(later) == (1 if name.startswith("ddp") else processes), name


def test_messages_are_those_the_strategy_must_send(exchanged):
    _, found = exchanged
    steps, whole = 2, ["all_reduce", "gradients", ELEMENTS, 8 * ELEMENTS]
    for rank in found["allreduce_flat observed"]:
        assert rank["sent"] == [[*whole, steps]]
    for rank in found["ddp observed"]:
        assert sum(size * count for *_, size, count in rank["sent"]) == steps * 8 * ELEMENTS
        assert {kind for kind, *_ in rank["sent"]} == {"all_reduce"}
    each = [[n, 8 * n, steps] for n in PARAMETERS.values()]
    for rank in found["allreduce observed"]:
        assert rank["sent"] == [["all_reduce", "gradients", *rest] for rest in each]
    for rank in found["gather_scatter observed"]:
        kinds = [[kind, "gradients", *rest] for rest in each for kind in ("gather", "scatter")]
        assert rank["sent"] == kinds
        assert 0 < rank["longest_s"] < 60
