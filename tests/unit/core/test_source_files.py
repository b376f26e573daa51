"""The user's source files: which are found, what changes their hash, where they are looked for."""

import re
import sys
from importlib import import_module

import pytest

from hpml_jobs.core.source_files import (
    changed_files,
    imported_code,
    source_files,
    versions_of,
    without_files,
)

FILES = {
    "train.py": "import os\nimport torch\nfrom pkg import net, NAME\nimport missing\n",
    "pkg/__init__.py": "NAME = 1\n",
    "pkg/net.py": "from . import layers\nfrom .deep.block import Block\n",
    "pkg/layers.py": "def f():\n    import late\n",
    "pkg/deep/block.py": "from ..tools import *\n",
    "pkg/tools.py": "",
    "pkg/unused.py": "",
    "late.py": "import broken\n",
    "broken.py": "def f(:\n",
    "space/names/data.py": "",
    "unused.py": "",
}


@pytest.fixture
def root(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def names(files):
    return [file.name for file in files]


def test_local_imports_are_followed_without_importing(root):
    files = source_files(["train:build", "space.names.data:get"], root)
    assert names(files) == [
        *(
            "broken.py",
            "late.py",
            "pkg/__init__.py",
            "pkg/deep/block.py",
            "pkg/layers.py",
        ),
        *("pkg/net.py", "pkg/tools.py", "space/names/data.py", "train.py"),
    ]
    assert "train" not in sys.modules


def test_installed_and_absent_modules_have_no_files(root):
    references = [
        "torchvision.models:resnet50",
        "json:loads",
        "sys:exit",
        "nowhere:build",
    ]
    assert source_files([*references, "hpml_jobs.core.errors:HpmlError"], root) == ()


def test_every_change_but_line_endings_changes_the_hash(root):
    before = source_files(["train:build"], root)
    (root / "train.py").write_bytes(FILES["train.py"].replace("\n", "\r\n").encode())
    assert source_files(["train:build"], root) == before
    assert changed_files(before, root) == []
    (root / "pkg" / "tools.py").write_text("# a comment\n")
    assert source_files(["train:build"], root) != before
    (root / "late.py").unlink()
    assert changed_files(before, root) == ["late.py (missing)", "pkg/tools.py"]


def test_imports_from_folders_that_code_adds_to_sys_path_are_found(
    tmp_path, monkeypatch
):
    """And no file of Python, of this program or of an installed package."""
    (tmp_path / "lib/deep").mkdir(parents=True)
    (tmp_path / "lib/helper_of_main.py").write_text(
        "import msgspec, json\nfrom deep import net\n"
    )
    (tmp_path / "lib/deep/__init__.py").write_text("")
    (tmp_path / "lib/deep/net.py").write_text("REPEAT = 1\n")
    (tmp_path / "main_of_test.py").write_text(
        f"import sys\nsys.path.insert(0, {str(tmp_path / 'lib')!r})\nimport helper_of_main\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    before = {*sys.modules}
    parsed = source_files(["main_of_test:build"], tmp_path)
    import_module("main_of_test")
    code = imported_code(before)
    assert names(parsed) == ["main_of_test.py"]
    others = ["deep/__init__.py", "deep/net.py", "helper_of_main.py"]
    assert names(without_files(code.files, parsed)) == others
    version = versions_of(code.packages)
    assert [*version] == ["msgspec"]
    assert re.fullmatch(r"[\d.]+ [0-9a-f]{7}", version["msgspec"])
