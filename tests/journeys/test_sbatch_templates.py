"""The sbatch templates, submitted by hand, write the same records as hpml-jobs."""

import shutil
import sys
from pathlib import Path

import pytest

from tests.journeys.conftest import HERE

pytestmark = pytest.mark.journey

TEMPLATES = Path(__file__).parents[2] / "sbatch"
CELL = (
    "workload=digits",
    "data.limit=1024",
    "protocol=lab",
    "loader_workers=0",
    "cluster=rig",
    "--config-dir",
    str(HERE / "conf"),
)
SMALL = ("--mem=8G", "--constraint=rtx8000")  # the nodes are small, and not Torch's


@pytest.fixture(scope="module")
def submit_script(login, rig):
    """Return submit(*words): sbatch as a user types it, in a folder with the templates."""
    shutil.copytree(TEMPLATES, login.folder / "sbatch", dirs_exist_ok=True)

    def submit(*words):
        command = ["sbatch", "--parsable", f"--chdir={login.folder}", *words]
        python = f"HPML_PYTHON={sys.executable}"
        done = rig.run("env", f"--chdir={login.folder}", python, *command)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return submit


def test_three_sbatch_templates_write_the_same_records(
    submit_script, login, rig, submit
):
    cell = submit_script(
        *SMALL, "sbatch/cell.sbatch", *CELL, "gpus=2", "batch=64", "study=byhand"
    )
    assert rig.wait_for_state(cell, {"COMPLETED", "FAILED"}) == ["COMPLETED"]
    words = ("--array=0-1%1", "sbatch/grid.sbatch", *CELL, "gpus=1", "batch=128,512")
    grid = submit_script(*SMALL, *words, "study=byhand")
    done = rig.wait_for_state(grid, {"COMPLETED", "FAILED"})
    assert done == ["COMPLETED"] * 2
    tables = submit_script(
        f"--dependency=afterany:{grid}", "sbatch/collect.sbatch", "byhand"
    )
    assert rig.wait_for_state(tables, {"COMPLETED", "FAILED"}) == ["COMPLETED"]
    report = login.folder / "outputs" / "byhand" / "report" / "report.md"
    assert "batch 64 per process" in report.read_text()

    words = [word for word in CELL if word not in ("cluster=rig", *CELL[-2:])]
    grids = (("gpus=2", "batch=64"), ("-m", "gpus=1", "batch=128,512"))
    sent = [submit("byhand", *grid_words, *words) for grid_words in grids]
    # the program finds the hand-made records and has nothing to send
    reasons = [row["why"] for study in sent for row in study.answer["cells"]]
    assert reasons == 3 * ["left out: ok"]
    records = sent[0].records()
    assert len(records) == 3
    assert {record.attempt.job.split("_")[0] for record in records.values()} == {
        cell,
        grid,
    }
    for record in records.values():
        assert record.facts is not None
        assert record.facts.slurm["SLURM_JOB_ID"]
        hosts = [rank.host for rank in record.ranks]
        assert hosts == [record.attempt.hosts[0]] * record.cell.gpus
