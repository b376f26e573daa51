"""The wheelhouse: which lines of a lock it downloads, for which platforms, and wrong options."""

import runpy
import sys
from pathlib import Path

import pytest

LOCKS = Path(__file__).parents[3] / "locks"
wheelhouse = runpy.run_path(str(LOCKS / "wheelhouse.py"), run_name="wheelhouse")


@pytest.mark.parametrize("lock", ["worker.txt", "worker-cuda12.txt"])
def test_own_torch_leaves_out_torch_and_cuda_only(lock):
    of_all = wheelhouse["requirements"](LOCKS / lock, own_torch=False)
    kept = wheelhouse["requirements"](LOCKS / lock, own_torch=True)
    left_out = {line.partition("==")[0] for line in of_all if line not in kept}
    assert {"torch", "torchvision", "torchao", "triton"} <= left_out
    names = {line.partition("==")[0] for line in kept}
    assert {"nvidia-ml-py", "msgspec", "pandas", "scikit-learn"} <= names
    assert not any(name.startswith(("nvidia-cu", "cuda-")) for name in names)


def test_platforms_go_from_the_given_glibc_down():
    tags = wheelhouse["platforms"]("aarch64", "2.28")
    assert tags[0] == "manylinux_2_28_aarch64"
    assert "manylinux2014_aarch64" in tags
    assert not any("2_29" in tag or "x86" in tag for tag in tags)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--python", "python3", "a version such as 3.12 is needed"),
        ("--glibc", "new", "a version such as 2.28 is needed"),
        ("--lock", "no.txt", "there is no such file"),
    ],
)
def test_wrong_option_is_refused(option, value, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["wheelhouse", option, value])
    with pytest.raises(SystemExit) as stopped:
        wheelhouse["main"]()
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
