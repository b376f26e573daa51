"""Graphs that torch.compile makes in a process, counted by a backend that records and runs them."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, fx

from hpml_jobs.core.measurements import Role
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.core.training_path import CompileMode, TrainingPath
from hpml_jobs.worker import path_steps
from hpml_jobs.worker.epochs import (
    instrumented_epoch,
    train_epoch,
)
from hpml_jobs.worker.process_group import Placement
from hpml_jobs.worker.strategies import STRATEGIES
from hpml_jobs.worker.training import make_training

from .conftest import cpu_cell
from .path_training import IMAGES, WORKLOAD

CPU = (torch.device("cpu"),)
BATCH = 8


class RecordingBackend:
    """Runs graphs as they are; `batches` has the batch of each, None where it is symbolic."""

    def __init__(self) -> None:
        self.batches: list[int | None] = []

    def __call__(self, graph: fx.GraphModule, inputs: list[Tensor]) -> fx.GraphModule:
        """Record a graph by its images; a symbolic size is an input of its own."""
        tensors = [value for value in inputs if isinstance(value, Tensor)]
        (batch,) = (len(t) for t in tensors if t.ndim == 4 and not t.requires_grad)
        self.batches.append(batch if len(tensors) == len(inputs) else None)
        return graph


@pytest.fixture
def backend(monkeypatch):
    """Nothing is compiled before and after the test."""
    recording = RecordingBackend()
    monkeypatch.setattr(path_steps, "BACKEND", recording)
    torch.compiler.reset()
    yield recording
    torch.compiler.reset()


@pytest.mark.parametrize("strategy", [Strategy.SINGLE, Strategy.DDP])
def test_a_cell_compiles_in_its_warmup_epoch_only(one_rank, backend, strategy):
    """One graph for the full batch and one for the last; none for a new wrapper, none for E3."""
    gpus = 1 if strategy is Strategy.SINGLE else 2
    path = TrainingPath(compile=CompileMode.DEFAULT)
    settings = {"gpus": gpus, "strategy": strategy, "loader_workers": 0, "path": path}
    cell = cpu_cell(WORKLOAD, batch=BATCH, **settings)
    training = make_training(
        cell, STRATEGIES[strategy](cell, Placement(0, 0, 1), CPU), Path.cwd()
    )
    train_epoch(training, 0, Role.WARMUP)
    assert backend.batches == [BATCH, IMAGES % BATCH]
    train_epoch(training, 1, Role.TIMED)
    training.rewrap(instrumented=True)
    instrumented_epoch(training, 2)
    train_epoch(training.without_exchange(), 3, Role.UNSYNCED)
    assert len(backend.batches) == 2
