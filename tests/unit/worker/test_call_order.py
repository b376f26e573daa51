"""Order of calls: what a rank does before each window that it times."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.worker import epochs, loop, probes
from hpml_jobs.worker.process_group import Placement
from hpml_jobs.worker.strategies import STRATEGIES
from hpml_jobs.worker.training import make_training

from . import path_training
from .conftest import cpu_cell
from .path_training import BATCH, IMAGES, WORKLOAD

CPU = (torch.device("cpu"),)
HERE = "tests.unit.worker.test_call_order"
EPOCH = [BATCH] * (IMAGES // BATCH) + [IMAGES % BATCH]
"""The batches of an epoch."""

CALLS: list[Any] = []
"""What the rank of a test did: batches of its passes by size, and other calls by name."""


def build() -> nn.Module:
    """Return the model of `path_training`, which records its passes."""
    model = path_training.build()

    def record(module: nn.Module, _: Any, outputs: torch.Tensor) -> None:
        if module.training:
            outputs.register_hook(lambda gradient: CALLS.append(len(gradient)))

    model.register_forward_hook(record)
    return model


WRAPPERS = (Strategy.SINGLE, Strategy.DDP, Strategy.FSDP)


@pytest.fixture(params=WRAPPERS)
def training(one_rank, request, monkeypatch):
    """A training whose calls are recorded; dp needs GPUs."""
    CALLS.clear()
    kind = STRATEGIES[request.param]
    cell = cpu_cell(
        replace(WORKLOAD, model=f"{HERE}:build"),
        gpus=1 if request.param is Strategy.SINGLE else 2,
        batch=BATCH,
        strategy=request.param,
        loader_workers=0,
        protocol=Protocol.FULL,
        epochs=4,
        evaluate=False,
    )
    strategy = kind(cell, Placement(0, 0, 1), CPU)
    wrap = strategy.wrap

    def recorded_wrap(model: nn.Module, **options: bool) -> nn.Module:
        CALLS.append("wrap")
        return wrap(model, **options)

    class Window(epochs.Window):
        def __enter__(self) -> Any:
            CALLS.append("window")
            return super().__enter__()

    monkeypatch.setattr(strategy, "wrap", recorded_wrap)
    monkeypatch.setattr(epochs, "Window", Window)
    return make_training(cell, strategy, Path.cwd())


def calls_before_windows() -> list[list[Any]]:
    """Return the calls before each window but the first, that of the warm-up epoch."""
    places = [place for place, call in enumerate(CALLS) if call == "window"]
    return [CALLS[:place] for place in places[1:]]


def passes_since(call: str, calls: list[Any]) -> list[int]:
    """Return the batches of the passes since the last such call."""
    since = calls[len(calls) - calls[::-1].index(call) :]
    return [size for size in since if isinstance(size, int)]


PROGRESS = SimpleNamespace(
    begin=lambda *_: None, count_batches=lambda batches, _: batches
)


@pytest.mark.parametrize("passes", [2, len(EPOCH) + 3])
def test_wrapper_has_settled_before_every_timed_epoch(training, monkeypatch, passes):
    """Also where the warm-up epoch has fewer iterations than DDP needs passes on CUDA."""
    monkeypatch.setattr(type(training.strategy), "settling_passes", passes)
    loop.train(training, PROGRESS)
    made = [len(passes_since("wrap", calls)) for calls in calls_before_windows()]
    if training.strategy.overlaps:
        assert made == [max(len(EPOCH), passes), passes, passes]
    else:
        assert made == [len(EPOCH), 0, 0]


def test_window_begins_with_new_peaks(training, monkeypatch):
    """No pass lies between the reset and the window."""
    monkeypatch.setattr(training.memory, "start", lambda: CALLS.append("peaks"))
    loop.train(training, PROGRESS)
    for calls in calls_before_windows():
        assert passes_since("peaks", calls) == []


def test_trace_begins_warm(training, monkeypatch, tmp_path):
    """Whole iterations of each size come after the last release of memory."""
    epochs.train_epoch(training, 0, Role.WARMUP)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: CALLS.append("released"))
    steps = probes.OptionalSteps(training.strategy)
    probes.write_trace(training, tmp_path / "trace.json.gz", steps)
    assert steps.missing == []
    before = calls_before_windows()[-1]
    assert {*passes_since("released", before)} == {*EPOCH}
