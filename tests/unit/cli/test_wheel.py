"""The wheel is complete and works from any folder."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_wheel_has_configs_and_works_from_any_folder(tmp_path):
    build = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        "wheel",
        "-d",
        str(tmp_path),
    ]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    site, desk = tmp_path / "site", tmp_path / "desk"
    desk.mkdir()
    with zipfile.ZipFile(wheel) as file:
        file.extractall(site)
    assert (site / "hpml_jobs" / "sbatch" / "cell.sbatch").is_file()
    for words in (
        ["--help"],
        ["help", "cell"],
        ["plan", "cluster=local", "device=cpu", "--all"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "hpml_jobs", *words],
            cwd=desk,
            env=os.environ | {"PYTHONPATH": str(site), "XDG_CONFIG_HOME": str(desk)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "batch" in done.stdout
    used = "import hpml_jobs.core.paths as i; print(i.conf_folder())"
    shown = subprocess.run(
        [sys.executable, "-c", used],
        cwd=desk,
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(shown.stdout.strip()) == site / "hpml_jobs" / "conf"
