"""Half precision under strategies that shard: messages, copies of the model, overflows."""

from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from torch import nn
from torch.utils.data import TensorDataset

from hpml_jobs.core.measurements import Role
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.training_path import Precision, TrainingPath
from hpml_jobs.core.workload import Workload
from hpml_jobs.worker.epochs import train_epoch
from hpml_jobs.worker.process_group import Placement
from hpml_jobs.worker.strategies import STRATEGIES
from hpml_jobs.worker.training import Training, make_training
from tests.unit.worker.conftest import SMALL_DIGITS, cpu_cell, results_of_ranks
from tests.unit.worker.sharding.half_precision import (
    OPTIMIZERS,
    OVERFLOWS,
    PATH,
    SHARDING,
    STEPS,
)

HERE = "tests.unit.worker.sharding.test_half_precision"
BLOCKS, WIDTH, HIDDEN, CLASSES = 4, 32, 64, 16
WORKLOAD = Workload(
    name="mlp", model=f"{HERE}:Model", data=f"{HERE}:dataset", images=16, lr=0.1
)
CPU = (torch.device("cpu"),)
FP32, BF16 = TrainingPath(), TrainingPath(precision=Precision.BF16)
IN_BLOCKS, IN_HEAD = BLOCKS * 2 * WIDTH * HIDDEN, WIDTH * CLASSES
"""Elements of the weights in the groups of the blocks, and in that of the model."""


class Model(nn.Sequential):
    """Blocks of two linear layers, each a group of fsdp, and a head; without biases."""

    def __init__(self) -> None:
        def block() -> nn.Module:
            first = nn.Linear(WIDTH, HIDDEN, bias=False)
            return nn.Sequential(first, nn.GELU(), nn.Linear(HIDDEN, WIDTH, bias=False))

        blocks = [block() for _ in range(BLOCKS)]
        super().__init__(*blocks, nn.Linear(WIDTH, CLASSES, bias=False))
        self.fsdp_groups = blocks


def dataset(train: bool) -> TensorDataset | None:
    return TensorDataset(torch.randn(16, WIDTH), torch.arange(16)) if train else None


def training_of(workload: Workload, ranks: int, **settings) -> Training:
    cell = cpu_cell(workload, gpus=4, batch=4, loader_workers=0, **settings)
    strategy = STRATEGIES[cell.strategy](cell, Placement(0, 0, ranks), CPU)
    return make_training(cell, strategy, Path.cwd())


@pytest.mark.parametrize(("path", "size"), [(FP32, 4), (BF16, 2)])
def test_fsdp_gathers_weights_in_the_precision_of_the_path(four_ranks, path, size):
    """Those of the blocks in forward and in backward; gradients are reduced in fp32."""
    training = training_of(WORKLOAD, 4, strategy=Strategy.FSDP, path=path)
    gathered, reduced = training.strategy.shard_facts(
        training.replica, training.optimizer
    ).expected
    assert gathered.bytes == size * (IN_HEAD + 2 * IN_BLOCKS)
    assert reduced.bytes == 4 * (IN_HEAD + IN_BLOCKS)


def test_copy_without_exchange_computes_what_fsdp_computes(one_rank):
    """With a BatchNorm without parameters, whose statistics are fp32."""
    training = training_of(SMALL_DIGITS, 1, strategy=Strategy.FSDP, path=BF16)
    alone, images = training.without_exchange(), next(iter(training.batches(0)))[0]
    with training.steps.forward(), alone.steps.forward():
        outputs = [model(images) for model in (training.model, alone.model)]
    assert torch.equal(*outputs)
    outputs[0].sum().backward()
    layers = [
        module
        for module in alone.replica.modules()
        if getattr(module, "weight", None) is not None
    ]
    dtypes = {type(layer).__name__: layer.weight.dtype for layer in layers}
    assert dtypes == {
        "Conv2d": torch.bfloat16,
        "Linear": torch.bfloat16,
    }
    assert {p.grad.dtype for p in training.replica.parameters()} == {torch.float32}


@pytest.fixture(scope="module")
def of_ranks(rank_server):
    """Results of two ranks."""
    return results_of_ranks(rank_server, "tests.unit.worker.sharding.half_precision", 2)


def test_overflow_on_one_rank_is_left_out_by_all(of_ranks):
    """Of which each rank's shard has one, in one of the first steps."""
    results = of_ranks
    assert len(results) == len(SHARDING) * len(OPTIMIZERS)
    for name, (rank, other) in results.items():
        assert rank == other, name
        assert rank["is_finite"], name
        initial, *after = rank["hashes"]
        skipped = len(OVERFLOWS)
        assert after[:skipped] == [initial] * skipped, name
        assert len({initial, *after[skipped:]}) == 1 + STEPS - skipped, name


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_epoch_without_exchange_trains_fp16_parameters(one_rank, optimizer):
    """GradScaler would refuse their gradients."""
    workload = replace(WORKLOAD, optimizer=optimizer)
    cell = {"strategy": Strategy.FSDP, "path": PATH, "device": Device.CUDA}
    alone = training_of(workload, 1, **cell).without_exchange()
    assert {p.dtype for p in alone.replica.parameters()} == {torch.float16}
    assert train_epoch(alone, 0, Role.UNSYNCED).epoch.loss > 0
