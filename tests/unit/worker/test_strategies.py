"""Which process this is, and what every strategy takes per iteration."""

import pytest
import torch

from hpml_jobs.cell import Device, Strategy
from hpml_jobs.errors import HpmlError
from hpml_jobs.worker.strategies import DP, STRATEGIES, Place, Single, this_place

from .conftest import cpu_cell


def test_every_strategy_has_a_class():
    assert set(STRATEGIES) == set(Strategy)


def test_started_plainly_is_rank_0_of_1(monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert this_place(cpu_cell()) == Place(0, 0, 1)
    with pytest.raises(HpmlError, match=r"gpus=4 is 4 process\(es\), but 1 were started"):
        this_place(cpu_cell(gpus=4))


def test_torchrun_tells_the_place(monkeypatch):
    for name, value in {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}.items():
        monkeypatch.setenv(name, value)
    assert this_place(cpu_cell(gpus=8)) == Place(5, 1, 8)


def test_dp_loads_the_batches_of_all_its_devices():
    cards = tuple(torch.device("cuda", number) for number in range(4))
    cell = cpu_cell(gpus=4, strategy=Strategy.DP, device=Device.CUDA)
    assert DP(cell, Place(0, 0, 1), cards).loader_batch == 256
    assert Single(cpu_cell(), Place(0, 0, 1), cards[:1]).loader_batch == 64
