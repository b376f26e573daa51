"""Operators that epochs of strategies, named by words, dispatch: run as ranks with -m.

Rank 0 prints as JSON what the timed epoch dispatches beyond a bare loop, the instrumented one
beyond the timed one, and its messages; all per iteration. What an epoch dispatches once is the same
in epochs of two lengths.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hpml_jobs.core.measurements import Role
from hpml_jobs.core.processes import leave
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.worker.epochs import EpochResult, instrumented_epoch, train_epoch
from hpml_jobs.worker.process_group import COLLECTIVE_TIMEOUT, read_placement
from hpml_jobs.worker.strategies import STRATEGIES
from hpml_jobs.worker.training import Training, make_training
from tests.gpu.bench import ResidentBatches

from .conftest import cpu_cell

LENGTHS = (2, 4)
"""Iterations of the two epochs of each kind."""


class Counter(TorchDispatchMode):
    """Counts operators, those of backward too: on the CPU they run in this thread."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.count += 1
        return operator(*args, **(kwargs or {}))


def bare_epoch(training: Training) -> None:
    """Train one epoch as a loop in plain PyTorch does."""
    training.model.train()
    for batch in training.loader:
        inputs, labels = training.to_device(batch)
        training.loss(training.model(inputs), labels).backward()
        if training.reduces_gradients:
            training.strategy.reduce_gradients(training.replica)
        training.optimizer.step()
        training.optimizer.zero_grad()


def per_iteration(training: Training, epoch: Callable[[], Any]) -> float:
    """Return the operators of one iteration."""
    batch = training.sample_batch
    counts = []
    for length in LENGTHS:
        training.loader = ResidentBatches([batch] * length)
        with Counter() as counter:
            epoch()
        counts.append(counter.count)
    return (counts[1] - counts[0]) / (LENGTHS[1] - LENGTHS[0])


def operators(strategy: Strategy) -> dict[str, float]:
    """Return the operators of a strategy's epochs beyond each other, and its messages."""
    alone = strategy is Strategy.SINGLE
    cell = cpu_cell(
        gpus=1 if alone else 2, strategy=strategy, loader_workers=0, batch=32
    )
    parallel = STRATEGIES[strategy](cell, read_placement(cell), (torch.device("cpu"),))
    if not alone and not torch.distributed.is_initialized():
        parallel.setup(COLLECTIVE_TIMEOUT)
    training = make_training(cell, parallel, Path())
    training.sample_batch = next(iter(training.loader))
    results: list[EpochResult] = []

    def instrumented() -> None:
        results.append(instrumented_epoch(training, 1))

    train_epoch(training, 0, Role.WARMUP)
    bare = per_iteration(training, lambda: bare_epoch(training))
    timed = per_iteration(training, lambda: train_epoch(training, 0, Role.PLAIN))
    training.rewrap(instrumented=True)
    instrumented()  # DDP's first pass makes its buckets
    with_stamps = per_iteration(training, instrumented)
    ledger = results[-1].ledger
    assert ledger is not None
    return {
        "timed": timed - bare,
        "instrumented": with_stamps - timed,
        "messages": len(ledger.collectives) / LENGTHS[1],
    }


def main() -> None:
    of_strategies = {name: operators(Strategy(name)) for name in sys.argv[1:]}
    if read_placement(cpu_cell(gpus=1 if "single" in of_strategies else 2)).rank == 0:
        print(json.dumps(of_strategies))  # noqa: T201  (the test reads it)
    leave(0)


if __name__ == "__main__":
    main()
