"""Names and paths that a shell would trip over are carried to the job and back, or refused."""

import json
import os
from pathlib import Path

import pytest

from hpml_jobs.study.study import Study
from tests.conftest import Program
from tests.journeys.conftest import HERE
from tests.rig import Rig

pytestmark = pytest.mark.journey

NASTY = "we ird; $(touch taken) `touch taken` 'q' \"d\" & ü€"
OWN = (
    *("gpus=1", "batch=16", "workload=custom", "workload.data=user_code:dataset", "protocol=lab"),
    *("workload.model=user_code:build", "cluster=rig", "cluster.isolate=off", "loader_workers=0"),
    *("--config-dir", str(HERE / "conf"), "--json"),
)


@pytest.fixture(scope="module")
def nasty(desk: Program) -> Program:
    """The same desk, in a folder of such a name, with a token in the environment."""
    folder = desk.folder / NASTY
    folder.mkdir()
    (folder / "user_code.py").symlink_to(desk.folder / "user_code.py")
    return Program(folder, desk.environment | {"MY_TOKEN": "a-token", "SLURM_SPANK_X": "a-token"})


def files_with(folder: Path, text: bytes) -> list[Path]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if text in path.read_bytes()]


def test_unusual_folder_name_reaches_job_and_back(nasty: Program, rig: Rig) -> None:
    array = json.loads(nasty.ok(*OWN, "study=array", "collect_after=true"))
    pack = json.loads(nasty.ok(*OWN, "study=pack", "pack=true"))
    for name in ("array", "pack"):
        nasty.ok("watch", name, "--every", "1")
        (state,) = json.loads(nasty.ok("status", name, "--json"))["cells"]
        assert (state["outcome"], state["reason"]) == ("ok", "")
    rig.wait_for_state(array["closing"], {"COMPLETED"}, timeout_s=120)
    study = Study(Path(array["folder"]))
    assert (study.report / "tables.md").exists()
    assert Path(pack["folder"]).is_relative_to(nasty.folder)
    assert not list(nasty.folder.rglob("taken"))
    assert not (Path.home() / "taken").exists()
    assert not files_with(nasty.folder / "outputs", b"a-token")


def test_submit_into_folder_of_another_user_is_refused(nasty: Program) -> None:
    slurm = nasty.folder / "outputs" / "open" / "slurm"
    slurm.mkdir(parents=True)
    slurm.chmod(0o700)
    os.chown(slurm, 12345, -1)
    done = nasty(*OWN, "study=open")
    assert done.returncode == 1
    assert "others may write there, and jobs run what lies in it; chmod 700" in done.stderr


def test_folder_name_unusable_for_slurm_logs_is_refused(desk: Program) -> None:
    folder = desk.folder / "a\nb"
    folder.mkdir()
    (folder / "user_code.py").symlink_to(desk.folder / "user_code.py")
    done = Program(folder, desk.environment)(*OWN, "study=array")
    assert done.returncode == 1
    assert "SLURM cannot write logs to a path with" in done.stderr
    assert len(done.stderr.strip().splitlines()[-1].split("hpml-jobs: ")) == 2
