"""An epoch on every training path between real processes: run by torchrun with -m.

Every rank trains the same small convolutional model on the same images, once on the plain path and
once on each other path; rank 0 prints by how much the weights of each differ, as JSON.
"""

import json
import os
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.processes import leave
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.core.training_path import Precision, TrainingPath
from hpml_jobs.core.workload import Workload
from hpml_jobs.worker import epochs
from hpml_jobs.worker.epochs import instrumented_epoch, train_epoch
from hpml_jobs.worker.instruments.collectives import fingerprint
from hpml_jobs.worker.process_group import COLLECTIVE_TIMEOUT, Placement, read_placement
from hpml_jobs.worker.strategies import STRATEGIES
from hpml_jobs.worker.training import Training, make_training

from .conftest import cpu_cell

IMAGES, BATCH = 96, 8
HERE = "tests.unit.worker.path_training"
WORKLOAD = Workload(
    name="paths", model=f"{HERE}:build", data=f"{HERE}:dataset", images=IMAGES, classes=4, lr=0.1
)
CPU = (torch.device("cpu"),)

PATHS = {
    "bf16": TrainingPath(precision=Precision.BF16),
    "channels_last": TrainingPath(channels_last=True),
    "bf16 channels_last": TrainingPath(precision=Precision.BF16, channels_last=True),
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
    placement = Placement(0, 0, 1) if cell.strategy is Strategy.SINGLE else read_placement(cell)
    strategy = STRATEGIES[cell.strategy](cell, placement, CPU)
    strategy.wrap = partial(strategy.wrap, instrumented=instrumented)
    return make_training(cell, strategy, Path.cwd())


def trained(cell: Cell, *, instrumented: bool = False) -> list[Tensor]:
    """Return the weights after one epoch."""
    training = training_of(cell, instrumented=instrumented)
    if instrumented:
        instrumented_epoch(training, 0)
    else:
        train_epoch(training, 0, Role.TIMED)
    return [parameter.detach() for parameter in training.replica.parameters()]


def difference(weights: list[Tensor], others: list[Tensor]) -> float:
    """Return the largest difference of two sets of weights, relative to the largest change."""
    pairs = zip(weights, others, strict=True)
    largest = max(float((weight - other).abs().max()) for weight, other in pairs)
    torch.manual_seed(0)
    initial = zip(weights, (p.detach() for p in build().parameters()), strict=True)
    return largest / max(float((weight - start).abs().max()) for weight, start in initial)


def compare(strategy: Strategy, processes: int) -> dict:
    """Return the difference of every path from the plain one, and whether ranks are equal."""
    settings = {"workload": WORKLOAD, "batch": BATCH, "loader_workers": 0, "strategy": strategy}
    plain = trained(cpu_cell(gpus=processes, **settings))
    results = {}
    for name, path in PATHS.items():
        cell = cpu_cell(gpus=processes, path=path, **settings)
        weights = trained(cell)
        again = trained(cell, instrumented=True)
        results[name] = {
            "difference": difference(weights, plain),
            "instrumented": difference(again, weights),
            "hash": fingerprint(weights),
        }
    return results


def main() -> None:
    torch.set_num_threads(1)
    epochs.frozen_heap = nullcontext  # there are no loader workers, and it collects all garbage
    processes = int(os.environ["WORLD_SIZE"])
    cell = cpu_cell(gpus=processes)
    STRATEGIES[Strategy.DDP](cell, read_placement(cell), CPU).setup(COLLECTIVE_TIMEOUT)
    results = {"single": [compare(Strategy.SINGLE, 1)]}
    for strategy in Strategy:
        if strategy.under_torchrun:
            of_ranks = [None] * processes
            dist.all_gather_object(of_ranks, compare(strategy, processes))
            results[strategy.value] = of_ranks
    if dist.get_rank() == 0:
        print(json.dumps(results))  # noqa: T201  (the test reads it)
    dist.destroy_process_group()
    leave(0)


if __name__ == "__main__":
    main()
