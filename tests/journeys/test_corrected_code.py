"""A fault in a script's own all-reduce: the study says so, and shows the corrected code first."""

import re

import pytest

from hpml_jobs.study.study import Study
from tests.conftest import Program
from tests.journeys.conftest import HERE

pytestmark = pytest.mark.journey

TRAIN = """\
import os
import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from exchange import average

is_parallel = int(os.environ["WORLD_SIZE"]) > 1
if is_parallel:
    distributed.init_process_group("gloo")
data = TensorDataset(torch.randn(1024, 64), torch.arange(1024) % 10)
sampler = DistributedSampler(data) if is_parallel else None
model = nn.Linear(64, 10)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(4):
    for inputs, targets in DataLoader(data, 32, sampler=sampler):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        if is_parallel:
            average(model.parameters())
        optimizer.step()
"""

EXCHANGE = """\
from torch import distributed

def average(parameters):
    for parameter in parameters:
        distributed.all_reduce(parameter.grad)
        parameter.grad /= distributed.get_world_size()
"""

FAULTY = EXCHANGE.replace("get_world_size", "world_size")

SUBMIT = (
    *("-m", "gpus=1,2", "batch=32", "script=train.py", "strategy=allreduce"),
    *("study=mine", "cluster=rig", "cluster.isolate=off"),
    *("--config-dir", str(HERE / "conf")),
)

REPLACED = "2 cells of older code, submitted again with the current code"


def slugs_in(text):
    """Return the cells of a text in its order, each once."""
    return [*dict.fromkeys(re.findall(r"(?:single|allreduce)-\S+-\w{6}\b", text))]


def test_corrected_code_is_submitted_again_and_shown_first(rig, tmp_path):
    login = Program(tmp_path, rig.env)
    (tmp_path / "train.py").write_text(TRAIN)
    exchange = tmp_path / "exchange.py"

    exchange.write_text(FAULTY)
    login.ok(*SUBMIT)
    collected = " ".join(login.ok("collect", "--wait").split())
    assert "AttributeError: module 'torch.distributed'" in collected
    assert "exchange.py" in login.ok("logs")
    assert "hpml-jobs resubmit mine --failed" in login.ok("status")
    older = {cell.slug for cell in Study(tmp_path / "outputs" / "mine").cells()}
    assert len(older) == 2

    exchange.write_text(EXCHANGE)
    assert "repeat the command that submitted the study" in login.ok("status")
    refused = login("resubmit", "--failed")
    assert refused.returncode == 1
    assert "your code changed" in refused.stderr
    repeated = login(*SUBMIT)
    assert "submitted 2 cells" in repeated.stdout
    assert "exchange.py changed since" in repeated.stderr

    collected = login.ok("collect", "--wait", "--strict")
    assert "1 -> 2 processes" in collected
    assert "AttributeError" not in collected

    shown = login.ok("status")
    assert {*slugs_in(shown)[2:]} == older
    assert shown.count(REPLACED) == 1
    assert "repeat the command" not in shown
    assert "--failed" not in shown
    assert "no cell has failed" in login.ok("logs")
    assert "nothing to resubmit" in login.ok("resubmit", "--failed")

    page = (tmp_path / "outputs" / "mine" / "report" / "report.md").read_text()
    titles = re.findall(r"^## (Group .*)$", page, re.M)
    assert ["(older version)" in title for title in titles] == [False, True]
    of_older_code = page.partition(f"## {titles[1]}\n")[2].partition("\n## ")[0]
    assert of_older_code
    assert "hpml-jobs resubmit" not in of_older_code
