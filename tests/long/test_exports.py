"""Exports for wandb and MLflow, read back by these tools in fresh environments.

They are too large for the environment of every test run: 350 and 540 MiB.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Program
from tests.unit.builders import a_cell, a_record, lab_cell, lab_record
from tests.unit.study_builder import StudyBuilder
from tests.unit.training_runs import write_curves

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.long

READ_WANDB = """\
import json, pathlib, struct, sys
from wandb.proto.wandb_internal_pb2 import Record
runs = {}
for path in sorted(pathlib.Path(sys.argv[1]).glob("wandb/offline-run-*/*.wandb")):
    content, at, record = path.read_bytes(), 7, b""
    run = runs.setdefault(path.parent.name.rpartition("-")[2], {"history": []})
    while at < len(content):  # LevelDB's log format: blocks of 32 KiB, checksum, length, type
        if 32_768 - at % 32_768 < 7:
            at += 32_768 - at % 32_768
            continue
        _, length, kind = struct.unpack("<IHB", content[at : at + 7])
        record += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind not in (1, 4):  # whole, or the last part
            continue
        read, record = Record.FromString(record), b""
        for name, items in (
            ("config", read.run.config.update),
            ("summary", read.summary.update),
            ("history", read.history.item),
        ):
            values = {i.key or i.nested_key[0]: json.loads(i.value_json) for i in items}
            if values and name == "history":
                run["history"].append(values)
            elif values:
                run.setdefault(name, {}).update(values)
        if read.run.run_id:
            run |= {"name": read.run.display_name, "tags": list(read.run.tags)}
print(json.dumps(runs))
"""

READ_MLFLOW = """\
import json, sys
from mlflow import MlflowClient
client = MlflowClient(tracking_uri=f"sqlite:///{sys.argv[1]}/mlflow.db")
(experiment,) = [e for e in client.search_experiments() if e.name == "mine"]
runs = client.search_runs([experiment.experiment_id])
print(json.dumps({
    run.data.tags["hpml_jobs.id"]: {
        "name": run.info.run_name, "status": run.info.status, "config": run.data.params,
        "summary": run.data.metrics,
        "history": [m.value for m in client.get_metric_history(run.info.run_id, "iteration/loss")],
        "times": len(client.get_metric_history(run.info.run_id, "epoch_s")),
    } for run in runs
}))
"""


def environment(folder, *packages):
    """A fresh environment with these packages; its Python."""
    uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
    subprocess.run(
        [uv, "venv", "--quiet", "--python", sys.executable, folder], check=True
    )
    command = [uv, "pip", "install", "--quiet", *packages]
    subprocess.run(command, check=True, env=os.environ | {"VIRTUAL_ENV": str(folder)})
    return folder / "bin" / "python"


def read_by(python, script, *words):
    done = subprocess.run(
        [python, "-W", "ignore", "-c", script, *words],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.fixture
def builder(tmp_path):
    """Three sizes, one cell out of memory, one with 147 iterations."""
    builder = StudyBuilder(tmp_path / "outputs" / "mine")
    for gpus, epoch_s in ((1, 8.0), (2, 4.4), (4, 4.0)):
        builder.with_record(
            a_record(a_cell(gpus=gpus, batch=128), f"10{gpus}_0.r0", epoch_s)
        )
    builder.with_out_of_memory(a_cell(gpus=4, batch=512))
    write_curves(builder, builder.with_record(lab_record(lab_cell(2, 512), 20.0)).slug)
    return builder


def without_network():
    """The words that run a command where no network exists, if this user may make such a place."""
    words = ["unshare", "--net", "--map-root-user"]
    allowed = (
        subprocess.run([*words, "true"], check=False, capture_output=True).returncode
        == 0
    )
    return words if allowed else []


def test_wandb_and_mlflow_read_back_the_same_runs_after_two_exports(builder, tmp_path):
    python = environment(
        tmp_path / "environment",
        f"{ROOT}[wandb,mlflow]",
        "-c",
        str(ROOT / "locks" / "login.txt"),
    )
    program = Program(tmp_path, os.environ, python=python)
    for form in ("wandb", "mlflow", "wandb", "mlflow"):
        words = [*without_network(), python, "-m", "hpml_jobs", "export", "mine", form]
        done = subprocess.run(
            [*words, "--to", tmp_path / form],
            cwd=tmp_path,
            env=program.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "exported 5" in done.stdout
        assert done.stderr == ""

    offline = read_by(python, READ_WANDB, tmp_path / "wandb")
    stored = read_by(python, READ_MLFLOW, tmp_path / "mlflow")
    assert len(offline) == 5
    assert offline.keys() == stored.keys()
    slug = builder.slug
    of_wandb = next(run for run in offline.values() if run["name"] == slug)
    of_mlflow = next(run for run in stored.values() if run["name"] == slug)
    assert of_wandb["config"]["gpus"] == 2
    assert of_mlflow["config"]["gpus"] == "2"
    assert of_wandb["tags"] == ["mine", "resnet18_cifar10", "ok"]
    assert of_wandb["summary"]["epoch_s"] == of_mlflow["summary"]["epoch_s"] == 20
    assert of_wandb["summary"]["loss"] == of_mlflow["summary"]["loss"] == 1.5
    losses = [row["iteration/loss"] for row in of_wandb["history"]]
    assert len(losses) == len(of_mlflow["history"]) == 147
    assert losses == pytest.approx(of_mlflow["history"])
    assert of_mlflow["times"] == 1
    assert sorted(run["status"] for run in stored.values()) == ["FAILED"] + 4 * [
        "FINISHED"
    ]
