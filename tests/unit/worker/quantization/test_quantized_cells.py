"""Cells that are quantized, and their records: what is refused, and with which words."""

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.quantization import quantized_of
from hpml_jobs.core.validation import InvalidRecordError, decode
from tests.unit.builders import LENET, a_cell, a_record
from tests.unit.core.test_record_faults import json_of
from tests.unit.quantization_results import part
from tests.unit.worker.conftest import SMALL_DIGITS, change_workload, cpu_cell
from tests.unit.worker.test_ranks import OWN

QUANTIZED = a_cell(gpus=1, workload=LENET, quantize=part(calibration=100))


FAULTS = {
    "missing": (
        json_of(a_record(QUANTIZED), lambda values: values.update(quantized=None)),
        "quantization was configured or done, but not both",
    ),
    "no fp32 network": (
        json_of(
            a_record(QUANTIZED), lambda values: values["quantized"]["steps"].pop(0)
        ),
        "quantization begins without the fp32 network",
    ),
    "another network": (
        json_of(
            a_record(QUANTIZED),
            lambda values: values["ranks"][0].update(test_accuracy=0.1),
        ),
        "not the same network",
    ),
    "miscounted step": (
        json_of(
            a_record(QUANTIZED),
            lambda values: values["quantized"]["steps"][3].update(samples=9),
        ),
        "quantization: 6470 of 9 images right in weights",
    ),
}


def test_percentile_that_is_no_number_is_refused(slurm, working_folder, capsys):
    value = "nan"
    assert run(["workload=digits", f"quantize.percentile={value}"]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"hpml-jobs: quantize.percentile={value}: must be a finite number"


@pytest.mark.parametrize("case", FAULTS)
def test_contradictory_record_is_refused(case):
    text, reason = FAULTS[case]
    with pytest.raises(InvalidRecordError) as refused:
        decode(text, "record.json")
    assert reason in str(refused.value)


@pytest.mark.long
def test_quantized_network_is_the_evaluated_one(run_cell):
    """Also with protocol=full, where steps after it train the replica further."""
    lenet = change_workload(
        SMALL_DIGITS, name="lenet", model="lenet", parameters=61_770
    )
    settings = part(calibration=32)
    finished = run_cell(cpu_cell(lenet, protocol=Protocol.FULL, quantize=settings))
    assert finished.code == 0, finished.stderr
    quantized = quantized_of(finished.record)
    assert quantized is not None
    assert quantized.steps[0].accuracy == finished.record.ranks[0].test_accuracy
    assert [step.what for step in quantized.steps] == [
        "fp32",
        *["weights"] * 3,
        *["integers"] * 3,
    ]


def test_unquantizable_model_is_refused_before_training(run_here, tmp_path):
    (tmp_path / "mycode.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def build(): return nn.Sequential(nn.Flatten(), nn.Linear(4, 2), nn.GELU())\n"
        "def plain(): return nn.Sequential(nn.Flatten(), nn.Linear(4, 2))\n"
        "def dataset(train): return [(torch.zeros(4), 1)] * 64 if train else None\n"
    )
    for model, text in (
        ("mycode:build", "GELU"),
        (
            "mycode:plain",
            "workload.data=mycode:dataset has no test images, which quantization needs",
        ),
    ):
        workload = change_workload(OWN, model=model, images=64, classes=2)
        error = run_here(cpu_cell(workload, quantize=part(calibration=8))).error
        assert text in error.reason
        assert "\n" not in error.reason
