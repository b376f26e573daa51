"""Lifetimes: wrappers, batches, outputs and copies of the model are freed when they should be."""

import gc
import weakref
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from hpml_jobs.core.measurements import Role
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.core.training_path import Precision, TrainingPath
from hpml_jobs.worker import probes
from hpml_jobs.worker.epochs import instrumented_epoch, train_epoch
from hpml_jobs.worker.process_group import (
    Placement,
)
from hpml_jobs.worker.strategies import STRATEGIES
from hpml_jobs.worker.training import Training, make_training

from .conftest import cpu_cell
from .path_training import BATCH, IMAGES, WORKLOAD

CPU = (torch.device("cpu"),)
TORCHS = (Strategy.DDP, Strategy.ZERO1, Strategy.FSDP)
EXCHANGES = {name: (name, None) for name in TORCHS}
CASTING = [name for name in Strategy if name.traffic.casts_parameters]
IN_BF16 = {f"{name} bf16": (name, Precision.BF16) for name in CASTING}


@pytest.fixture(params=EXCHANGES.values(), ids=EXCHANGES)
def training(one_rank, request) -> Training:
    strategy, precision = request.param
    return training_of(strategy, path=TrainingPath(precision=precision))


def training_of(strategy: Strategy, **settings) -> Training:
    cell = cpu_cell(
        WORKLOAD, gpus=2, batch=BATCH, strategy=strategy, loader_workers=0, **settings
    )
    return make_training(
        cell, STRATEGIES[strategy](cell, Placement(0, 0, 1), CPU), Path.cwd()
    )


def alive(references: list[weakref.ref]) -> int:
    gc.collect()
    return sum(reference() is not None for reference in references)


def test_old_wrapper_is_freed_when_the_model_is_wrapped_anew(training):
    """With it go its buckets, and its hooks on the parameters; fsdp has none."""
    wrappers = []
    for is_instrumented in (True, False, True):
        if training.model is not training.replica:
            wrappers.append(weakref.ref(training.model))
        training.rewrap(instrumented=is_instrumented)
        (instrumented_epoch if is_instrumented else train_one)(training, 1)
    assert len(wrappers) == (
        3 if training.cell.strategy.traffic.sync_buffers == "on" else 0
    )
    assert alive(wrappers) == 0


def train_one(training: Training, number: int) -> None:
    train_epoch(training, number, Role.TIMED)


@pytest.mark.parametrize("epoch", [train_one, instrumented_epoch])
def test_epoch_leaves_its_last_batch_only(training, epoch):
    """The last batch stays for the passes of a new wrapper; no forward finds the results before."""
    batches, results, found, loss_of = [], [], [], training.loss

    def remember(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        found.append(alive(results))
        batches.append(weakref.ref(inputs[0]))

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        value = loss_of(outputs, targets)
        results.extend(map(weakref.ref, (outputs, value)))
        return value

    training.replica.register_forward_pre_hook(remember)
    training.loss = loss
    epoch(training, 0)
    assert len(batches) > 1
    assert found == [0] * len(batches)
    assert (alive(batches), alive(results)) == (1, 0)


def test_epoch_without_exchange_begins_warm(training, monkeypatch):
    """Whole iterations with a batch of each size come before it, and no memory is released then."""
    calls, copy_replica = [], training.copy_replica

    def copy() -> nn.Module:
        replica = copy_replica()
        replica.register_forward_hook(
            lambda _, inputs, __: calls.append(len(inputs[0]))
        )
        return replica

    def epoch(*arguments):
        calls.append("epoch")
        return train_epoch(*arguments)

    train_epoch(training, 0, Role.WARMUP)
    monkeypatch.setattr(training, "copy_replica", copy)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append("released"))
    monkeypatch.setattr(probes, "train_epoch", epoch)
    assert probes.unsynced_epoch(training, probes.OptionalSteps(training.strategy))
    whole, last = BATCH, IMAGES % BATCH
    of_epoch = [*[whole] * (IMAGES // BATCH), last]
    warm = ["released", whole, whole, last, last]
    assert calls == [*warm, "epoch", *of_epoch]


@pytest.mark.parametrize(
    "training", (EXCHANGES | IN_BF16).values(), ids=EXCHANGES | IN_BF16, indirect=True
)
def test_epoch_without_exchange_leaves_no_copy_of_the_model(training, monkeypatch):
    """Nor its momentum: the microbenchmark needs the memory."""
    copies = []

    def epoch(alone: Training, *arguments):
        result = train_epoch(alone, *arguments)
        momentum = [
            state["momentum_buffer"] for state in alone.optimizer.state.values()
        ]
        tensors = (*alone.replica.parameters(), *momentum)
        copies.extend(map(weakref.ref, (alone.replica, alone.optimizer, *tensors)))
        return result

    monkeypatch.setattr(probes, "train_epoch", epoch)
    (result,) = probes.unsynced_epoch(training, probes.OptionalSteps(training.strategy))
    assert (result.role, len(copies)) == (Role.UNSYNCED, 14)
    assert alive(copies) == 0
