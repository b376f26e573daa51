"""Optimizers of a rank's share, with all uninitialized memory full of NaN."""

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from hpml_jobs.core.strategies import Strategy
from hpml_jobs.worker.optimizer import make_optimizer, state_bytes
from hpml_jobs.worker.process_group import Placement
from hpml_jobs.worker.strategies import STRATEGIES
from tests.unit.worker.conftest import SMALL_DIGITS, fake_ranks
from tests.unit.worker.test_dirty_memory import (
    CPU,
    _dirty_memory,  # noqa: F401  (a fixture of every test)
    cuda_cell,
    linear,
)


@pytest.fixture
def rank_of_two():
    """Rank 0 of two, whose messages go nowhere."""
    with fake_ranks(2):
        yield Placement(0, 0, 2)


def test_zero1_starts_with_the_momentum_of_its_share(rank_of_two):
    cell, model = cuda_cell(SMALL_DIGITS, gpus=2, strategy=Strategy.ZERO1), linear()
    strategy = STRATEGIES[Strategy.ZERO1](cell, rank_of_two, (CPU,))
    optimizer = make_optimizer(cell, model, strategy.sharded)
    assert state_bytes(optimizer) == 4 * 12  # the weight: the bias is on the other rank
    (parameter,) = optimizer.optim.param_groups[0]["params"]
    parameter.grad = torch.ones_like(parameter)
    decayed = parameter.grad + cell.workload.weight_decay * parameter.detach()
    optimizer.step()
    (state,) = optimizer.optim.state.values()
    torch.testing.assert_close(state["momentum_buffer"], decayed)


def test_fsdp_steps_without_the_fused_sgd_that_torch_lacks(rank_of_two):
    cell = cuda_cell(SMALL_DIGITS, gpus=2, strategy=Strategy.FSDP)
    model = nn.Sequential(linear())
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    optimizer = make_optimizer(cell, model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert state_bytes(optimizer) == 4 * (2 * 4 + 2)  # rank 0's rows of 3
