"""The checks of a compute node for doctor, with a cell's file."""

import json

import msgspec

from hpml_jobs.core.cell import CellFile
from hpml_jobs.core.findings import NodeAnswer, Severity
from hpml_jobs.core.strategies import Device
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.worker.node_check import check_node, main, required_torch

from .conftest import change_workload, cpu_cell

FILE = CellFile(cell=cpu_cell(), data_root="/nowhere", code_root="/nowhere")


def findings_of(file):
    return {finding.about: finding for finding in check_node(file)}


def test_working_node_has_no_problem():
    findings = findings_of(FILE)
    assert [name for name in findings if findings[name].level is Severity.PROBLEM] == []
    assert "26,154 parameters" in findings["node data"].seen


def test_other_package_version_is_a_problem():
    finding = findings_of(msgspec.structs.replace(FILE, hpml_jobs="0.0.1"))["node versions"]
    assert finding.level is Severity.PROBLEM
    assert finding.remedy.startswith("install 0.0.1")


def test_data_missing_on_node_is_a_problem():
    missing = msgspec.structs.replace(FILE.cell.workload, data="cifar10", name="there")
    cell = msgspec.structs.replace(FILE.cell, workload=missing)
    findings = findings_of(msgspec.structs.replace(FILE, cell=cell))
    assert findings["node data"].level is Severity.PROBLEM
    assert findings["devices"].level is Severity.OK


def test_missing_gpu_is_a_problem(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    cell = msgspec.structs.replace(FILE.cell, device=Device.CUDA)
    finding = findings_of(msgspec.structs.replace(FILE, cell=cell))["devices"]
    assert finding.level is Severity.PROBLEM
    assert "device=cuda" in finding.seen


def test_node_check_writes_its_answer_file(tmp_path):
    cell_path, answer_path = tmp_path / "cell.json", tmp_path / "answer.json"
    write_whole(cell_path, encode(FILE))
    assert main(str(cell_path), str(answer_path)) == 0
    answer = msgspec.convert(json.loads(answer_path.read_text()), NodeAnswer)
    assert "devices" in {finding.about for finding in answer.findings}


def test_torchvision_without_torch_requirement_is_accepted():
    assert required_torch(["numpy"]) is None


def test_own_code_that_cannot_train_is_found_on_the_node(tmp_path, monkeypatch):
    (tmp_path / "node_code.py").write_text(
        "import torch\n"
        "def build(): return torch.nn.Linear(4, 10)\n"
        "def good(train): return [(torch.zeros(4), 1)] * 64 if train else None\n"
        "def bad(train): return [{'input': torch.zeros(4)}] * 64 if train else None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    own = {"name": "own", "model": "node_code:build", "images": 64, "limit": None}
    for function, level, words in (
        ("good", Severity.OK, "opened 64 samples of own; its model has 50 parameters, and trained"),
        ("bad", Severity.PROBLEM, "item 0 of dataset(True) is a dict with input: return a pair"),
    ):
        workload = change_workload(
            FILE.cell.workload, data=f"node_code:{function}", parameters=None, **own
        )
        cell = msgspec.structs.replace(FILE.cell, workload=workload)
        finding = findings_of(msgspec.structs.replace(FILE, cell=cell))["node data"]
        assert finding.level is level
        assert words in finding.seen
