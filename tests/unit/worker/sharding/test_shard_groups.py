"""Which modules fsdp gathers as a group, and the torch that it needs."""

import pytest
import torch
from torch import nn

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.worker import models
from hpml_jobs.worker.process_group import COLLECTIVE_TIMEOUT, Placement
from hpml_jobs.worker.sharding import fsdp
from hpml_jobs.worker.sharding.fsdp import shard_groups
from hpml_jobs.worker.strategies import STRATEGIES
from tests.unit.worker.conftest import cpu_cell


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = nn.Linear(width, 3 * width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        )


class Transformer(nn.Module):
    """A decoder whose output layer shares the embedding's weight."""

    def __init__(self, layers=4, width=32, words=256):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embedding.weight


def test_resnets_are_divided_into_their_blocks():
    for build in (models.resnet18_cifar, models.resnet18):
        groups = shard_groups(build(10))
        assert len(groups) == 8
        assert {type(group).__name__ for group in groups} <= {"_Block", "BasicBlock"}


def test_plain_layers_of_a_size_are_groups():
    model = models.vgg11_bn(10)
    groups = shard_groups(model)
    assert {type(group) for group in groups} == {nn.Conv2d}
    assert len(groups) == 6  # all convolutions but the first two, with 0.02 and 0.8 %


def test_transformer_blocks_are_groups_and_tied_weights_are_not():
    model = Transformer()
    assert shard_groups(model) == list(model.blocks)


def test_model_names_its_own_groups():
    model = Transformer()
    model.fsdp_groups = lambda: [model.blocks[0], model.blocks[0].mlp]
    # parts come first
    assert shard_groups(model) == [
        model.blocks[0].mlp,
        model.blocks[0],
    ]
    model.fsdp_groups = [model]
    with pytest.raises(
        HpmlError, match=r"Transformer\.fsdp_groups names Transformer, which is"
    ):
        shard_groups(model)


def test_torch_without_countable_messages_is_refused(monkeypatch):
    monkeypatch.setattr(fsdp, "COUNTS_MESSAGES", False)  # as before torch 2.9
    cell = cpu_cell(gpus=2, strategy=Strategy.FSDP)
    strategy = STRATEGIES[Strategy.FSDP](
        cell, Placement(0, 0, 2), (torch.device("cpu"),)
    )
    with pytest.raises(HpmlError, match=r"torch 2\.9 on .*use strategy=zero1 or ddp"):
        strategy.setup(COLLECTIVE_TIMEOUT)


def test_cell_on_the_cpu_stays_there_on_a_machine_with_a_gpu(four_ranks, monkeypatch):
    """torch's own choice is the accelerator of the machine, whatever the cell's device is."""
    monkeypatch.setattr(torch._C, "_get_accelerator", lambda: torch.device("cuda"))
    cell = cpu_cell(gpus=4, strategy=Strategy.FSDP)
    strategy = STRATEGIES[Strategy.FSDP](
        cell, Placement(0, 0, 4), (torch.device("cpu"),)
    )
    model = strategy.wrap(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4)))
    meshes = {parameter.device_mesh for parameter in model.parameters()}
    assert [(mesh.device_type, mesh.size()) for mesh in meshes] == [("cpu", 4)]
