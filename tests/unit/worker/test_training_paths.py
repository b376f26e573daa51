"""Every training path trains the weights that the plain path trains, on 1, 2 and 4 processes."""

import threading
from math import ceil

import numpy as np
import pytest
import torch
from torch import nn

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.training_path import (
    TORCH_TF32,
    Precision,
    TrainingPath,
)
from hpml_jobs.worker import path_steps
from hpml_jobs.worker.instruments.timing import IterationTimes
from hpml_jobs.worker.path_steps import MicroSteps
from hpml_jobs.worker.strategies import gradients_of

from .conftest import cpu_cell, results_of_ranks

TOLERANCE = {True: 0.1, False: 1e-5}
"""The largest difference of weights relative to the change that training made, with bf16 or not;
bf16 has 8 bits."""

PATHS = {"bf16", "channels_last", "accumulate", "compiled accumulate"}

IMAGES, BATCH, ACCUMULATED = 92, 6, 3
GRADIENT_BYTES = 4 * 940
SHARDED = {"zero1", "fsdp"}
PASSES = {"single": 0, "gather_scatter": 2}


def cuda_cell(path):
    return cpu_cell(device=Device.CUDA, path=path)


def test_replicas_in_new_threads_compute_in_bf16():
    """torch starts a replica's thread with autocast enabled, in float16."""
    model = path_steps.with_autocast(
        nn.Linear(4, 2), TrainingPath(precision=Precision.BF16)
    )
    dtypes = []

    def replica():
        with torch.autocast("cpu", torch.float16):
            dtypes.append(model(torch.ones(1, 4)).dtype)

    thread = threading.Thread(target=replica)
    thread.start()
    thread.join()
    assert dtypes == [torch.bfloat16]
    plain = nn.Linear(4, 2)
    assert path_steps.with_autocast(plain, TrainingPath()) is plain


@pytest.fixture
def modes():
    """torch's modes as they are by default."""
    cuda, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    cuda.allow_tf32, cudnn.allow_tf32 = TORCH_TF32
    cudnn.benchmark = False
    return cuda, cudnn


def test_modes_of_a_path_are_set_on_gpus_only(modes, monkeypatch):
    cuda, cudnn = modes
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    gpu, set_to = (torch.device("cuda", 0),), {}
    for value in (None, *Precision):
        path_steps.set_modes(cuda_cell(TrainingPath(precision=value)), gpu)
        set_to[value] = cuda.allow_tf32, cudnn.allow_tf32, cudnn.benchmark
        cuda.allow_tf32, cudnn.allow_tf32 = TORCH_TF32
    assert set_to[Precision.FP32] == (False, False, True)
    assert set_to[Precision.TF32] == (True, True, True)
    assert {set_to[p] for p in (None, Precision.BF16, Precision.FP16)} == {
        (False, True, True)
    }
    cpu = (torch.device("cpu"),)
    path_steps.set_modes(cpu_cell(path=TrainingPath(precision=Precision.FP32)), cpu)
    assert (cudnn.allow_tf32, cudnn.benchmark) == (True, False)


def test_gpu_without_tensor_cores_for_bf16_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Quadro RTX 8000")
    path = TrainingPath(precision=Precision.BF16)
    with pytest.raises(
        HpmlError, match=r"bf16 on a Quadro RTX 8000: .* use precision=fp16"
    ):
        path_steps.set_modes(cuda_cell(path), (torch.device("cuda", 0),))


def test_channels_last_gradients_are_sent_in_memory_order():
    model = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    model(torch.ones(1, 3, 5, 5)).sum().backward()
    weight, bias = gradients_of(model)
    assert (weight.shape, weight.data_ptr()) == ((108,), model.weight.grad.data_ptr())
    assert bias is model.bias.grad


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.long)])
def results(request, rank_server):
    """Differences from the plain path: by strategy, rank and path."""
    names = [name for name in Strategy if name.under_torchrun]
    module = "tests.unit.worker.path_training"
    return results_of_ranks(rank_server, module, request.param, *names)


def test_paths_train_the_weights_of_the_plain_path(results):
    assert {*results} - SHARDED == {*Strategy} - SHARDED - {"dp"}
    for strategy, ranks in results.items():
        for rank in ranks:
            paths = PATHS
            if strategy in SHARDED:  # the shards have the plain layout
                paths = {path for path in paths if "last" not in path}
            if strategy == "fsdp" or (len(ranks) == 2 and strategy != "ddp"):
                paths = {path for path in paths if "compiled" not in path}
            assert set(rank) == paths
            for path, result in rank.items():
                half = "bf16" in path
                assert result["difference"] <= TOLERANCE[half], (strategy, path)
                assert half == (result["difference"] > 1e-4), (strategy, path)
                assert result["instrumented"] <= TOLERANCE[half], (strategy, path)


def test_ranks_of_a_path_have_equal_weights(results):
    for strategy, ranks in results.items():
        for path in ranks[0]:
            assert len({rank[path]["hash"] for rank in ranks}) == 1, (strategy, path)


def test_iterations_and_samples_of_a_path_are_counted(results):
    """An iteration is a step of the optimizer, over a batch or over several accumulated ones."""
    for ranks in results.values():
        share = IMAGES // len(ranks)
        steps = ceil(share / BATCH)
        for path, result in ranks[0].items():
            accumulates = "accumulate" in path
            batches = ceil(share / (BATCH // ACCUMULATED)) if accumulates else steps
            assert result["counted"] == 2 * [[steps, share, batches]], path
            assert result["lengths"] == 4 * [steps], path
            # the phases of all micro-steps, summed
            assert result["parts"] == pytest.approx(1)


def test_gradients_are_exchanged_once_per_iteration(results):
    for strategy, ranks in results.items():
        passes, steps = PASSES.get(strategy, 1), ceil(IMAGES // len(ranks) / BATCH)
        for path, result in ranks[0].items():
            assert result["sent"] == passes * steps * GRADIENT_BYTES, (strategy, path)
            assert result["iterations"] == (list(range(steps)) if passes else []), (
                strategy,
                path,
            )


def test_fsdp_gathers_in_forward_and_backward_of_every_batch(results):
    """In bf16 a parameter has two bytes on the way, and its gradient four, as always."""
    for path, result in results["fsdp"][0].items():
        _, (_, _, batches) = result["counted"]
        whole = GRADIENT_BYTES // 2 if "bf16" in path else GRADIENT_BYTES
        assert result["gathered"] == 2 * batches * whole, path


def test_micro_steps_group_batches_of_uneven_size():
    """The last iteration has a micro-step less."""
    micro_steps = MicroSteps(accumulate=2, count=5, batch=4, samples=18)
    samples = [4, 4, 4, 4, 2]
    weights = [micro_steps.weight(n, count) for n, count in enumerate(samples)]
    assert weights == [0.5, 0.5, 0.5, 0.5, 1.0]
    losses = micro_steps.mean_losses(torch.tensor([1.0, 3.0, 2.0, 2.0, 7.0]), samples)
    assert losses.tolist() == [2.0, 2.0, 7.0]
    step_s = np.array([1.0, 2.0, 1.0, 1.0, 0.5])
    assert micro_steps.least_sum(step_s) == 2.0
    times = micro_steps.times(IterationTimes(step_s, step_s / 10, 0.1))
    assert times.step_s.tolist() == [3.0, 2.0, 0.5]
    assert times.stall_s.sum() == pytest.approx(0.55)
