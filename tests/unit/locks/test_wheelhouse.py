"""The wheelhouse: which lines of a lock it downloads, for which platforms; installation from it."""

import runpy
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

LOCKS = Path(__file__).parents[3] / "locks"
wheelhouse = runpy.run_path(str(LOCKS / "wheelhouse.py"), run_name="wheelhouse")


@pytest.mark.parametrize("lock", ["worker.txt", "worker-cuda12.txt"])
def test_own_torch_leaves_out_torch_and_cuda_only(lock):
    of_all = wheelhouse["requirements"](LOCKS / lock, own_torch=False)
    kept = wheelhouse["requirements"](LOCKS / lock, own_torch=True)
    left_out = {line.partition("==")[0] for line in of_all if line not in kept}
    assert {"torch", "torchvision", "triton"} <= left_out
    names = {line.partition("==")[0] for line in kept}
    assert {"nvidia-ml-py", "msgspec", "pandas", "scikit-learn"} <= names
    assert not any(name.startswith(("nvidia-cu", "cuda-")) for name in names)


def test_platforms_go_from_the_given_glibc_down():
    tags = wheelhouse["platforms"]("aarch64", "2.28")
    assert tags[0] == "manylinux_2_28_aarch64"
    assert "manylinux2014_aarch64" in tags
    assert not any("2_29" in tag or "x86" in tag for tag in tags)


@pytest.fixture
def folder(wheels):
    """A wheelhouse of one package."""
    (wheels / "requirements.txt").write_text("carried==1.0\n")
    return wheels


def run(python, *words):
    return subprocess.run(
        [str(python), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_environment_above_an_environment_has_its_packages(folder, tmp_path):
    """The machine's Python is that of an environment, which has torch and a folder in a .pth."""
    machine, above = tmp_path / "machine", tmp_path / "above"
    venv.create(machine, symlinks=True)
    (packages,) = machine.glob("lib/python*/site-packages")
    (packages / "torch.py").touch()
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "added.py").touch()
    (packages / "more.pth").write_text(f"{tmp_path / 'more'}\n")
    words = ("--folder", folder, "--install", above, "--own-torch")
    installed = run(machine / "bin" / "python", LOCKS / "wheelhouse.py", *words)
    assert (installed.returncode, installed.stderr) == (0, "")
    python = above / "bin" / "python"
    imported = run(python, "-c", "import carried, torch, added; print(torch.__file__)")
    assert (imported.stdout, imported.stderr) == (f"{packages / 'torch.py'}\n", "")
    (pth,) = above.glob("lib/python*/site-packages/machine.pth")
    pth.unlink()
    assert run(python, "-c", "import carried").returncode == 0
    assert "No module named 'torch'" in run(python, "-c", "import torch").stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--folder", "none"],
            "--folder none has no requirements.txt: copy the wheelhouse",
        ),
        (["--own-torch"], "has no torch: run it with one that has"),
    ],
)
def test_installation_that_cannot_work_is_refused(
    folder, options, message, monkeypatch, capsys
):
    monkeypatch.chdir(folder.parent)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["wheelhouse", "--install", "above", *options])
    with pytest.raises(SystemExit) as stopped:
        wheelhouse["main"]()
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
    assert not Path("above").exists()
