"""compile=true with torch's own compiler and the machine's g++: its record, and what it trains."""

import json

import pytest

pytestmark = pytest.mark.long

MODEL = """\
import torch
from torch.utils.data import TensorDataset


def build():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))


def dataset(train):
    if not train:
        return None
    images = torch.randn(256, 8, generator=torch.Generator().manual_seed(1))
    return TensorDataset(images, images[:, :4].argmax(1))
"""


def test_inductor_compiles_a_cell_once_and_trains_the_same(program, tmp_path):
    (tmp_path / "small.py").write_text(MODEL)
    program.environment |= {
        "PYTHONPATH": str(tmp_path),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
    }
    program.ok(
        *(
            "-m",
            "gpus=1,2",
            "compile=false,true",
            "batch=32",
            "loader_workers=0",
            "probe_s=1",
        ),
        *(
            "workload=custom",
            "workload.model=small:build",
            "workload.data=small:dataset",
        ),
        *("workload.lr=0.1", "study=inductor", "cluster=local", "device=cpu"),
    )
    records = {}
    for path in (tmp_path / "outputs" / "inductor").glob("cells/*/record.json"):
        record = json.loads(path.read_text())
        cell = record["cell"]
        records[cell["gpus"], cell.get("path", {}).get("compile") is not None] = record
    assert len(records) == 4
    for gpus in (1, 2):
        plain, compiled = records[gpus, False], records[gpus, True]
        for rank, same in zip(compiled["ranks"], plain["ranks"], strict=True):
            for epoch, other in zip(rank["epochs"], same["epochs"], strict=True):
                assert epoch["loss"] == pytest.approx(other["loss"], rel=1e-4)
