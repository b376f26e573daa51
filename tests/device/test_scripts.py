"""Scripts on the stand-in, measured from outside: the script's own losses, and no wait for it."""

import os
from pathlib import Path

import pytest

from hpml_jobs.core.validation import decode
from hpml_jobs.study.cell_folder import OBSERVE_VARIABLE
from hpml_jobs.worker.observer import __main__ as merging
from tests import device
from tests.unit.worker.observer.conftest import script_cell

PINNED = ", pin_memory=place.type != 'cpu'"
ROOT = Path(__file__).parents[2]

SCRIPT = f"""
import os, sys
from pathlib import Path
import torch
from torch import distributed as dist, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

place = torch.device(sys.argv[1], int(os.environ["LOCAL_RANK"]))
torch.accelerator.set_device_index(place.index) if place.type != "cpu" else None
dist.init_process_group("gloo" if place.type == "cpu" else place.type)
torch.manual_seed(dist.get_rank())
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(place)
model = nn.parallel.DistributedDataParallel(model)
data = TensorDataset(torch.randn(64, 8), torch.randint(4, (64,)))
loader = DataLoader(data, 4, sampler=DistributedSampler(data){PINNED})
optimizer = torch.optim.SGD(model.parameters(), 0.1)
losses = []
for epoch in range(3):
    for inputs, targets in loader:
        inputs, targets = (part.to(place, non_blocking=True) for part in (inputs, targets))
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
Path(sys.argv[2], "losses" + str(dist.get_rank())).write_text(str(torch.stack(losses).tolist()))
"""


@pytest.fixture
def run_script(write_cell, rank_server, tmp_path):
    """Return a function that runs the script in a place, and its record if it was observed."""

    def run(place, script=SCRIPT, *, observed=True):
        path = tmp_path / "train.py"
        path.write_text(script)
        folder = write_cell(script_cell("train.py", "", gpus=2, batch=4, stop=False))
        attempt = folder.attempt("17_0")
        environment = os.environ | (
            {OBSERVE_VARIABLE: str(attempt.root)} if observed else {}
        )
        words = ("tests.device.script", place, str(path), place, str(tmp_path))
        ended = rank_server.run(2, ROOT, *words, environment=environment)
        assert ended.code == 0, ended.stderr
        losses = [(tmp_path / f"losses{rank}").read_text() for rank in range(2)]
        if not observed:
            return losses, None
        merging.merge(folder.read(), attempt)
        return losses, decode(attempt.record.read_bytes(), str(attempt.record))

    return run


def test_script_on_the_device_is_measured(run_script):
    """The host does not wait for the device inside a window (`rank.refuse_waits`)."""
    alone, _ = run_script(device.NAME, observed=False)
    losses, record = run_script(device.NAME)
    assert losses == alone == run_script("cpu", observed=False)[0]
    assert record.facts.missing == ()
    for rank in record.ranks:
        assert [epoch.role for epoch in rank.epochs] == [
            "warmup",
            "timed",
            "instrumented",
        ]
        assert {epoch.iterations for epoch in rank.epochs} == {8}
        assert (
            rank.communication.bytes_of("gradients") == 8 * record.model.gradient_bytes
        )
        assert 0 < rank.phases.exposed_s <= rank.communication.total_s
        assert rank.timed.memory.allocated_bytes > record.model.gradient_bytes
    assert record.ranks[0].parameters_hash == record.ranks[1].parameters_hash


def test_script_that_waits_for_the_device_is_found(run_script):
    """Its copies are from memory that is not pinned."""
    _, record = run_script(device.NAME, SCRIPT.replace(PINNED, ""))
    assert "the host waited for the device in the loop" in record.facts.missing[-1]
