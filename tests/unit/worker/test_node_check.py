"""What a node tells doctor of itself, asked with a cell's own file."""

import json
from pathlib import Path

import msgspec
import pytest

from hpml_jobs.core.cell import CellFile, Device
from hpml_jobs.core.findings import Finding, Level, NodeAnswer
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.worker.node_check import look, main, torch_wanted

from .conftest import cpu_cell

FILE = CellFile(cell=cpu_cell(), data_root="/nowhere", code_root="/nowhere")


def told(file: CellFile) -> dict[str, Finding]:
    return {finding.about: finding for finding in look(file)}


def test_working_node_has_no_problem() -> None:
    found = told(FILE)
    assert {about for about, one in found.items() if one.level is Level.PROBLEM} == set()
    assert "26,154 parameters" in found["node data"].seen


def test_other_package_version_is_a_problem() -> None:
    found = told(msgspec.structs.replace(FILE, hpml_jobs="0.0.1"))["node versions"]
    assert found.level is Level.PROBLEM
    assert found.remedy.startswith("install 0.0.1")


def test_data_missing_on_node_is_a_problem() -> None:
    absent = msgspec.structs.replace(FILE.cell.workload, data="cifar10", name="there")
    cell = msgspec.structs.replace(FILE.cell, workload=absent)
    found = told(msgspec.structs.replace(FILE, cell=cell))
    assert found["node data"].level is Level.PROBLEM
    assert found["devices"].level is Level.OK


def test_missing_gpu_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    cell = msgspec.structs.replace(FILE.cell, device=Device.CUDA)
    found = told(msgspec.structs.replace(FILE, cell=cell))["devices"]
    assert found.level is Level.PROBLEM
    assert "device=cuda" in found.seen


def test_node_check_writes_its_answer_file(tmp_path: Path) -> None:
    asked, answer = tmp_path / "asked.json", tmp_path / "answer.json"
    write_whole(asked, encode(FILE))
    assert main(str(asked), str(answer)) == 0
    said = msgspec.convert(json.loads(answer.read_text()), NodeAnswer)
    assert "devices" in {finding.about for finding in said.findings}


def test_torchvision_without_torch_requirement_is_accepted() -> None:
    assert torch_wanted(["numpy"]) is None
