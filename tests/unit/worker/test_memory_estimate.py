"""The memory that `plan` estimates, against what torch keeps in training."""

from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

from hpml_jobs.core.built_in import MODELS
from hpml_jobs.core.formulas import weights_memory_bytes
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.core.training_path import Precision, TrainingPath
from hpml_jobs.core.workload import Workload
from hpml_jobs.plan.memory import need_of
from hpml_jobs.worker import models
from hpml_jobs.worker.optimizer import make_optimizer
from hpml_jobs.worker.path_steps import PathSteps
from hpml_jobs.worker.process_group import Placement
from hpml_jobs.worker.strategies import STRATEGIES
from hpml_jobs.worker.training import make_training

from .conftest import cpu_cell

CPU = (torch.device("cpu"),)
IMAGES = Workload(name="images", model="resnet18_cifar", data="synthetic", images=64, lr=0.1)
RESNET = replace(IMAGES, parameters=IMAGES.built_in_parameters)
TOKENS = Workload(
    name="tokens",
    model="gpt",
    data="tokens",
    images=64,
    lr=0.1,
    optimizer="adamw",
    layers=3,
    heads=4,
    width=128,
    context=48,
    vocab=200,
)
GPT = replace(TOKENS, parameters=TOKENS.built_in_parameters)
GPT2 = replace(TOKENS, layers=4, heads=12, width=768, context=1024, vocab=50_257)
FP32, BF16 = TrainingPath(), TrainingPath(precision=Precision.BF16)
RANKS, BATCH = 4, 2
GRADIENTS = 8
"""Bytes of two gradients of a score, which are not kept but made when backward begins."""


def kept_bytes(cell) -> int:
    """Return the bytes that forward keeps for backward, beside the parameters themselves."""
    strategy = STRATEGIES[cell.strategy](cell, Placement(0, 0, RANKS), CPU)
    training = make_training(cell, strategy, Path.cwd())
    inputs, targets = training.to_device(next(iter(training.batches(0))))
    storages = {}

    def pack(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage()._cdata] = tensor.untyped_storage()
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
    with hooks, training.steps.forward():
        outputs = training.model(inputs)
        assert training.loss(outputs, targets).requires_grad
    storages[0] = outputs.untyped_storage()
    if cell.strategy is not Strategy.FSDP:
        for parameter in training.replica.parameters():
            storages.pop(parameter.untyped_storage()._cdata, None)
    return sum(storage.nbytes() for storage in storages.values())  # 0: freed by fsdp


@pytest.mark.parametrize(
    ("strategy", "reshard"),
    [(Strategy.DDP, True), (Strategy.FSDP, True), (Strategy.FSDP, False)],
    ids=["ddp", "fsdp", "fsdp no reshard"],
)
@pytest.mark.parametrize("path", [FP32, BF16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("workload", [RESNET, GPT], ids=["resnet18", "gpt"])
def test_forward_keeps_what_the_estimate_says(four_ranks, workload, path, strategy, reshard):
    cell = cpu_cell(
        workload,
        gpus=RANKS,
        batch=BATCH,
        strategy=strategy,
        path=path,
        reshard=reshard,
        loader_workers=0,
    )
    parts = RANKS if strategy is Strategy.FSDP else 1
    values = 2 if workload is GPT else 1
    weights = weights_memory_bytes(workload.parameters, values, parts=parts, state_parts=parts)
    scores = BATCH * workload.context * workload.vocab if workload is GPT else 0
    estimate = need_of(cell).at(BATCH) - weights - GRADIENTS * scores
    assert kept_bytes(cell) == pytest.approx(estimate, rel=0.03)


def peak_bytes(cell) -> int:
    """Return the most that the tensors of an iteration hold; they have sizes, but no contents."""
    workload = cell.workload
    with FakeTensorMode():
        model, loss_of = models.build(workload), models.build_loss(workload)
        optimizer, steps = make_optimizer(cell, model), PathSteps(cell.path, *CPU)
        if workload.has_tokens:
            targets = torch.randint(workload.vocab, (cell.batch, workload.context))
            inputs = targets
        else:
            targets = torch.randint(workload.classes, (cell.batch,))
            inputs = torch.randn(cell.batch, 3, workload.image_size, workload.image_size)
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            for _ in range(2):
                with steps.forward():
                    outputs = model(inputs)
                    loss = loss_of(outputs, targets)
                steps.backward(loss)
                del outputs, loss
                steps.step(optimizer)
                optimizer.zero_grad()
                tracker.reset_mod_stats()  # for the next iteration
        return tracker.get_tracker_snapshot("peak")[CPU[0]]["Total"]


SIZES = {name: (replace(IMAGES, model=name), 1024) for name in MODELS} | {
    "gpt2 of 4 layers": (GPT2, 8)
}


@pytest.mark.parametrize("path", [FP32, BF16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("name", SIZES)
def test_peak_of_an_iteration_is_near_the_estimate(name, path):
    """Which has the gradients too: DDP's buckets hold them from the start, a process does not."""
    workload, batch = SIZES[name]
    workload = replace(workload, images=batch, parameters=workload.built_in_parameters)
    cell = cpu_cell(workload, batch=batch, path=path)
    peak = peak_bytes(cell)
    assert peak == pytest.approx(need_of(cell).at(batch), rel=0.1)
