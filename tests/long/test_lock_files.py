"""A fresh environment of each torch measures, collects, shards, quantizes."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import Program

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("requirements", "torch"),
    [
        (["-r", "locks/worker.txt"], "2.15.0+cu132"),
        ([".[worker]", "torch==2.14.1", "torchvision==0.29.1"], "2.14.1+cu130"),
        ([".[worker]", "torch==2.11.0", "torchvision==0.26.0"], "2.11.0+cu130"),
        (["-r", "locks/worker-cuda12.txt"], "2.7.1+cu126"),
    ],
)
def test_environment_measures_and_collects(requirements, torch, tmp_path, capsys):
    uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
    environment = tmp_path / "environment"
    begun = time.monotonic()
    subprocess.run(
        [uv, "venv", "--quiet", "--python", sys.executable, environment], check=True
    )
    variables = os.environ | {"VIRTUAL_ENV": str(environment)}
    for words in (requirements, ["--no-deps", "."]):
        command = [uv, "pip", "install", "--quiet", "--compile-bytecode", *words]
        subprocess.run(command, check=True, env=variables, cwd=ROOT)
    installed_s = time.monotonic() - begun

    program = Program(tmp_path, os.environ, python=environment / "bin" / "python")
    words = (
        "-m",
        "gpus=1,2",
        "batch=128",
        "workload=digits",
        "data.limit=2560",
        "study=lock",
    )
    program.ok(*words, "cluster=local", "device=cpu")
    tables = program.ok("collect", "lock", "--all")
    assert f"torch {torch}" in tables
    assert "2-process" in tables
    integers = ("grid=quantize", "workload=lenet_bias_cifar10", "workload.data=digits")
    program.ok(
        *(
            *integers,
            "data.limit=1024",
            "batch=64",
            "quantize.calibration=64",
            "study=integers",
        ),
        *("cluster=local", "device=cpu"),
    )
    quantized = program.ok("collect", "integers", "--all")
    assert "int8 weights + activations" in quantized
    sharded = sharded_cells(program, has_fsdp=not torch.startswith("2.7"))
    with capsys.disabled():
        print(
            f"\ntorch {torch}: installed in {installed_s:.0f} s\n{tables}\n{sharded}\n{quantized}"
        )


def sharded_cells(program, *, has_fsdp):
    """Run zero1, and fsdp, which an older torch refuses; return the tables."""
    words = ("gpus=2", "batch=128", "workload=digits", "data.limit=1024", "probe_s=2")
    place = ("study=sharded", "cluster=local", "device=cpu")
    program.ok(*words, *place, "strategy=zero1")
    fsdp = program(*words, *place, "strategy=fsdp")
    records = {
        path.parent.name.partition("-")[0]: json.loads(path.read_text())
        for path in (program.folder / "outputs" / "sharded").glob("cells/*/record.json")
    }
    held = sum(rank["held_elements"] for rank in records["zero1"]["ranks"])
    assert held == records["zero1"]["model"]["parameters"]
    assert set(records) == {"zero1", "fsdp"} if has_fsdp else {"zero1"}
    refusal = "its messages can be counted from torch 2.9 on"
    assert (refusal in fsdp.stdout + fsdp.stderr) == (not has_fsdp)
    return program.ok("collect", "sharded", "--all")
