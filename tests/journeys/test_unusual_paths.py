"""Names and paths with special characters reach the job and come back, or are refused."""

import json
import os
from pathlib import Path

import pytest

from hpml_jobs.study.study import Study
from tests.conftest import Program
from tests.journeys.conftest import HERE

pytestmark = pytest.mark.journey

UNUSUAL_NAME = "we ird; $(touch taken) `touch taken` 'q' \"d\" & ü€"
CELL = (
    *("gpus=1", "batch=16", "protocol=lab", "cluster=rig", "cluster.isolate=off"),
    *("loader_workers=0", "--config-dir", str(HERE / "conf"), "--json"),
)
BUILT_IN = (*CELL, "workload=digits", "data.limit=256")
OWN = (
    *(*CELL, "workload=custom", "workload.data=user_code:dataset"),
    "workload.model=user_code:build",
)


@pytest.fixture(scope="module")
def unusual_folder(login):
    """The program in a folder of such a name, with a token in the environment."""
    folder = login.folder / UNUSUAL_NAME
    folder.mkdir()
    (folder / "user_code.py").symlink_to(login.folder / "user_code.py")
    return Program(
        folder, login.environment | {"MY_TOKEN": "a-token", "SLURM_SPANK_X": "a-token"}
    )


def files_with(folder, text):
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if text in path.read_bytes()]


def test_unusual_folder_name_reaches_job_and_back(unusual_folder, rig):
    array = json.loads(unusual_folder.ok(*OWN, "study=array", "collect_after=true"))
    pack = json.loads(unusual_folder.ok(*BUILT_IN, "study=pack", "pack=true"))
    for name in ("array", "pack"):
        unusual_folder.ok("status", name, "--watch")
        (state,) = json.loads(unusual_folder.ok("status", name, "--json"))["cells"]
        assert (state["outcome"], state["reason"]) == ("ok", "")
    rig.wait_for_state(array["closing"], {"COMPLETED"})
    study = Study(Path(array["folder"]))
    assert (study.report / "report.md").exists()
    assert Path(pack["folder"]).is_relative_to(unusual_folder.folder)
    assert not list(unusual_folder.folder.rglob("taken"))
    assert not (Path.home() / "taken").exists()
    assert not files_with(unusual_folder.folder / "outputs", b"a-token")


def test_submit_into_folder_of_another_user_is_refused(unusual_folder):
    slurm = unusual_folder.folder / "outputs" / "open" / "slurm"
    slurm.mkdir(parents=True)
    slurm.chmod(0o700)
    os.chown(slurm, 12345, -1)
    done = unusual_folder(*BUILT_IN, "study=open")
    assert done.returncode == 1
    assert "study open belongs to 12345, and jobs run files in it" in done.stderr
