"""The formula of part fsdp_memory against the memory that torch's tracker counts on fake ranks."""

import msgspec
import pytest
import torch
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker

from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.training_path import Precision, TrainingPath
from hpml_jobs.worker import models
from hpml_jobs.worker.path_steps import PathSteps
from hpml_jobs.worker.process_group import Placement
from hpml_jobs.worker.strategies import STRATEGIES
from tests.gpu.bench import Bench
from tests.gpu.parts.fsdp_memory import BATCH, RANKS, kept_bytes
from tests.gpu.sizes import GPT2
from tests.unit.worker.conftest import fake_ranks

CPU = torch.device("cpu")
SMALL = {
    "layers": 2,
    "heads": 2,
    "width": 32,
    "context": 16,
    "vocab": 512,
    "padded_vocab": None,
}


def peak_bytes(cell):
    fsdp = STRATEGIES[Strategy.FSDP](cell, Placement(0, 0, RANKS), (CPU,))
    model = fsdp.wrap(models.build(cell.workload))
    optimizer = torch.optim.AdamW(model.parameters())
    steps, loss = (
        PathSteps(cell.path, CPU, autocast=False),
        models.build_loss(cell.workload),
    )
    tokens = torch.zeros((cell.batch, SMALL["context"]), dtype=torch.int64)

    def train():
        with steps.forward():
            outputs = model(tokens)
            error = loss(outputs, tokens)
        steps.backward(error)
        optimizer.step()
        optimizer.zero_grad()

    train()  # makes the optimizer's state
    tracker = FSDPMemTracker(model, optimizer)
    with tracker:
        train()
    return tracker.get_tracker_snapshot("peak")[CPU]["Total"]


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")  # the scores are a view
def test_peak_without_activations_is_that_of_the_formula(tmp_path):
    workload = msgspec.structs.replace(GPT2, **SMALL)
    settings = {
        "gpus": RANKS,
        "strategy": Strategy.FSDP,
        "workload": workload,
        "path": TrainingPath(precision=Precision.BF16),
    }
    bench = Bench(tmp_path, Device.CPU)
    with fake_ranks(RANKS):
        smaller, larger = (
            peak_bytes(bench.cell(batch=batch, **settings))
            for batch in (BATCH, 2 * BATCH)
        )
    assert 2 * smaller - larger == pytest.approx(kept_bytes(workload), rel=0.01)
