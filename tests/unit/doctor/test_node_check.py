"""The checks of a compute node for doctor, with a cell's file."""

import json

import msgspec

from hpml_jobs.core.answers import NodeAnswer, Severity
from hpml_jobs.core.cell import CellFile
from hpml_jobs.core.strategies import Device
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.worker.instruments.cards import CardReader
from hpml_jobs.worker.node_check import (
    card_findings,
    check_node,
    main,
)
from tests.unit.fake_nvml import FakeGpu, FakeNvml
from tests.unit.worker.conftest import change_workload, cpu_cell

FILE = CellFile(cell=cpu_cell(), data_root="/nowhere", code_root="/nowhere")


def findings_of(file):
    return {finding.about: finding for finding in check_node(file)}


def test_working_node_has_no_problem():
    findings = findings_of(FILE)
    assert [name for name in findings if findings[name].level is Severity.PROBLEM] == []
    assert "26,154 parameters" in findings["node data"].seen


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


def test_own_code_that_raises_is_found_on_the_node(tmp_path, monkeypatch):
    (tmp_path / "node_code.py").write_text(
        "import torch\n"
        "def build(): return torch.nn.Linear(4, 10)\n"
        "def good(train): return [(torch.zeros(4), 1)] * 64 if train else None\n"
        "def bad(train): raise ValueError('no such folder')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    own = {"name": "own", "model": "node_code:build", "images": 64, "limit": None}
    for function, level, words in (
        (
            "good",
            Severity.OK,
            "opened 64 samples of own; its model has 50 parameters",
        ),
        (
            "bad",
            Severity.PROBLEM,
            "no such folder",
        ),
    ):
        workload = change_workload(
            FILE.cell.workload, data=f"node_code:{function}", parameters=None, **own
        )
        cell = msgspec.structs.replace(FILE.cell, workload=workload)
        finding = findings_of(msgspec.structs.replace(FILE, cell=cell))["node data"]
        assert finding.level is level
        assert words in finding.seen


def test_health_of_each_gpu_is_one_line():
    gpus = (
        FakeGpu(uuid="GPU-0", reasons=0x1),
        FakeGpu(uuid="GPU-1", index=1, ecc=(0, 2), remapped=(0, 1, 1, 0)),
        FakeGpu(uuid="GPU-2", index=2, pcie=(4, 8, 4, 16)),
        FakeGpu(uuid="GPU-3", index=3, reasons=0x44, ecc=None, remapped=None),
    )
    uuids = tuple(gpu.uuid for gpu in gpus)
    findings = list(card_findings(CardReader(uuids, FakeNvml(*gpus))))
    place = "00000000:3B:00.0"
    assert [finding.seen for finding in findings] == [
        f"GPU 0 {place}: no fault",
        f"GPU 1 {place}: 2 uncorrected ECC errors",
        f"GPU 2 {place}: x8 of x16 lanes",
        f"GPU 3 {place}: clocks lowered by hw_thermal_slowdown",
    ]
    assert [finding.level for finding in findings] == [Severity.OK] + 3 * [
        Severity.WARNING
    ]
    assert findings[2].remedy == "report the node to the cluster's support"
