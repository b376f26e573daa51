"""Cells that are quantized, and their records: what is refused, and with which words."""

import pytest
from msgspec.structs import replace

from hpml_jobs.cli.main import run
from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.validation import InvalidRecordError, decode
from hpml_jobs.extras.quantization.settings import Quantize
from hpml_jobs.extras.quantization.values import quantized_of
from tests.unit.builders import DIGITS, LENET, NANO, a_cell, a_record
from tests.unit.core.test_record_faults import json_of
from tests.unit.extras.quantization.results import part
from tests.unit.worker.conftest import SMALL_DIGITS, change_workload, cpu_cell
from tests.unit.worker.test_ranks import OWN

ALONE = {
    "gpus": 1,
    "strategy": Strategy.SINGLE,
    "protocol": Protocol.LAB,
    "device": Device.CPU,
}
QUANTIZED = a_cell(gpus=1, workload=LENET, quantize=part(calibration=100))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"gpus": 2, "strategy": Strategy.DDP, "workload": DIGITS},
            "quantize with strategy=ddp: .* take gpus=1",
        ),
        (
            {"workload": DIGITS},
            "quantize with workload.model=digits_cnn: it understands lenet, lenet_bias, or your",
        ),
        ({"workload": NANO}, "quantize with workload.model=gpt: it understands lenet"),
        (
            {"workload": replace(NANO, model="own:build")},
            "quantize with workload.data=text: it calibrates on images",
        ),
    ],
)
def test_cell_that_cannot_be_quantized_is_refused(changes, words):
    with pytest.raises(UsageError, match=words):
        a_cell(**(ALONE | {"quantize": part(calibration=9)} | changes))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"calibration": 0},
            "quantize.calibration=0: activations are profiled on 1 training",
        ),
        ({"calibration": 1, "percentile": 0}, "quantize.percentile=0: must be above 0"),
        (
            {"calibration": 1, "percentile": 100.5},
            "quantize.percentile=100.5: must be above 0",
        ),
    ],
)
def test_quantization_without_scale_is_refused(values, words):
    with pytest.raises(UsageError, match=words):
        Quantize(**values)


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
    "not asked for": (
        json_of(
            a_record(QUANTIZED), lambda values: values["cell"].update(quantize=None)
        ),
        "quantization was configured or done, but not both",
    ),
    "of another form": (
        json_of(a_record(QUANTIZED), lambda values: values["quantized"].pop("steps")),
        "Object missing required field `steps`",
    ),
}


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_percentile_that_is_no_number_is_refused(value, slurm, working_folder, capsys):
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
