"""An epoch on every training path between real processes: run as ranks with -m.

Words name strategies. Every rank trains the same small convolutional model on the same images, once
on the plain path and once on each other path; rank 0 prints by how much the weights of each differ,
as JSON.
"""

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.measurements import Purpose, Role
from hpml_jobs.core.processes import leave
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.core.training_path import CompileMode, Precision, TrainingPath
from hpml_jobs.core.workload import Workload
from hpml_jobs.worker import path_steps
from hpml_jobs.worker.epochs import EpochResult, instrumented_epoch, train_epoch
from hpml_jobs.worker.instruments.collectives import fingerprint
from hpml_jobs.worker.process_group import COLLECTIVE_TIMEOUT, Placement, read_placement
from hpml_jobs.worker.strategies import STRATEGIES
from hpml_jobs.worker.training import Training, make_training

from .conftest import cpu_cell, of_all_ranks

IMAGES, BATCH = 92, 6
HERE = "tests.unit.worker.path_training"
WORKLOAD = Workload(
    name="paths",
    model=f"{HERE}:build",
    data=f"{HERE}:dataset",
    images=IMAGES,
    classes=4,
    lr=0.1,
)
CPU = (torch.device("cpu"),)

PATHS = {
    "bf16": TrainingPath(precision=Precision.BF16),
    "channels_last": TrainingPath(channels_last=True),
    "accumulate": TrainingPath(accumulate=3),
    "compiled accumulate": TrainingPath(compile=CompileMode.DEFAULT, accumulate=3),
}


def build() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 4),
    )


def dataset(train: bool) -> TensorDataset | None:
    if not train:
        return None
    images = torch.randn(IMAGES, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    return TensorDataset(images, (4 * images.mean((1, 2, 3)) * 8).long() % 4)


def training_of(cell: Cell, *, instrumented: bool = False) -> Training:
    placement = (
        Placement(0, 0, 1) if cell.strategy is Strategy.SINGLE else read_placement(cell)
    )
    strategy = STRATEGIES[cell.strategy](cell, placement, CPU)
    strategy.wrap = partial(strategy.wrap, instrumented=instrumented)
    return make_training(cell, strategy, Path.cwd())


class Trained(NamedTuple):
    weights: list[Tensor]
    result: EpochResult


def trained(cell: Cell, *, instrumented: bool = False) -> Trained:
    """Return the weights after one epoch, and the epoch."""
    training = training_of(cell, instrumented=instrumented)
    if instrumented:
        result = instrumented_epoch(training, 0)
    else:
        result = train_epoch(training, 0, Role.TIMED)
    weights = training.strategy.full_parameters(training.replica)
    return Trained([parameter.detach() for parameter in weights], result)


def difference(weights: list[Tensor], others: list[Tensor]) -> float:
    """Return the largest difference of two sets of weights, relative to the largest change."""
    pairs = zip(weights, others, strict=True)
    largest = max(float((weight - other).abs().max()) for weight, other in pairs)
    torch.manual_seed(0)
    initial = zip(weights, (p.detach() for p in build().parameters()), strict=True)
    return largest / max(
        float((weight - start).abs().max()) for weight, start in initial
    )


def compare(strategy: Strategy, processes: int) -> dict:
    """Return the difference of every path from the plain one at the same batch per iteration."""
    settings = {
        "workload": WORKLOAD,
        "loader_workers": 0,
        "strategy": strategy,
        "gpus": processes,
    }
    plain = trained(cpu_cell(batch=BATCH, **settings)).weights
    results = {}
    paths = dict(PATHS)
    if strategy in (Strategy.ZERO1, Strategy.FSDP):
        paths = {name: path for name, path in paths.items() if not path.channels_last}
    # test-long compiles under all of them, with 4 processes
    is_plain = processes == 2 and strategy is not Strategy.DDP
    if is_plain or not strategy.traffic.may_compile:
        paths = {name: path for name, path in paths.items() if not path.compile}
    for name, path in paths.items():
        cell = cpu_cell(batch=BATCH // path.accumulate, path=path, **settings)
        bare = trained(cell)
        instrumented = trained(cell, instrumented=True)
        phases, ledger = instrumented.result.phases, instrumented.result.ledger
        runs, times = (bare.result, instrumented.result), instrumented.result.times
        parts_s = sum(phases.phases.parts_s)
        results[name] = {
            "difference": difference(bare.weights, plain),
            "instrumented": difference(instrumented.weights, bare.weights),
            "hash": fingerprint(bare.weights),
            "counted": [
                [run.epoch.iterations, run.epoch.samples, run.epoch.stalls.batches]
                for run in runs
            ],
            "lengths": [
                *map(
                    len,
                    (bare.result.times.step_s, bare.result.losses, bare.result.rates),
                ),
                len(phases.iterations_s),
            ],
            "parts": parts_s / (float(times.step_s.sum()) + times.last_stall_s),
            "sent": phases.communication.bytes_of(Purpose.GRADIENTS),
            "gathered": phases.communication.bytes_of(Purpose.PARAMETERS),
            "iterations": sorted({entry.iteration for entry in ledger.collectives}),
        }
    return results


def main() -> None:
    torch.set_num_threads(1)
    path_steps.BACKEND = (
        "aot_eager"  # graphs as for inductor, but no C++ compiler, for speed
    )
    processes = int(os.environ["WORLD_SIZE"])
    cell = cpu_cell(gpus=processes)
    STRATEGIES[Strategy.DDP](cell, read_placement(cell), CPU).setup(COLLECTIVE_TIMEOUT)
    results = {"single": [compare(Strategy.SINGLE, 1)] if dist.get_rank() == 0 else []}
    names = [Strategy(word) for word in sys.argv[1:]]
    for strategy in names:
        results[strategy.value] = of_all_ranks(compare(strategy, processes))
    if dist.get_rank() == 0:
        print(json.dumps(results))  # noqa: T201  (the test reads it)
    dist.destroy_process_group()
    leave(0)


if __name__ == "__main__":
    main()
