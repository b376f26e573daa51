"""Installed packages are known by their metadata, wherever they are, and are never parsed."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

from hpml_jobs.core import installed, source_files
from hpml_jobs.core.source_files import imported_code

PACKAGE = {
    "theirs/__init__.py": "from . import more\n",
    "theirs/more.py": "import own_helper\n",
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on Python's path; the script, which imports from there, is in another."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "train_there.py").write_text(
        "import theirs.more, single, own_helper\n"
    )
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(installed, "_projects", lambda: ())
    monkeypatch.syspath_prepend(tmp_path / "place")
    return tmp_path / "place"


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def local_files(*references: str) -> list[str]:
    found = source_files.source_files(references or ["train_there"], Path.cwd())
    return [file.name for file in found]


RECORD = (
    "theirs/__init__.py,sha256=x,1\ntheirs/more.py,,\nsingle.py,,\n../bin/theirs,,\n"
)


def test_package_with_metadata_beside_it_is_not_parsed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in the same folder that no metadata names is the user's: pip install --target."""
    files = {"single.py": "", "theirs-1.0.dist-info/RECORD": RECORD}
    write(place, PACKAGE | {"own_helper.py": "import json\n"} | files)
    parsed: list[bytes] = []
    imports = source_files._imports
    monkeypatch.setattr(
        source_files,
        "_imports",
        lambda text, package: parsed.append(text) or imports(text, package),
    )
    assert local_files() == ["own_helper.py", "train_there.py"]
    assert len(parsed) == 2


def test_project_that_is_installed_in_place_is_code_where_it_is_developed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By direct_url.json, which pip writes for every build tool; its own folder decides."""
    write(place / "src", PACKAGE)
    monkeypatch.syspath_prepend(place / "src")
    monkeypatch.setattr(installed, "_projects", lambda: (place,))
    assert local_files("theirs.more") == []
    write(place / "scripts", {"train_here.py": "import theirs.more\n"})
    monkeypatch.chdir(place / "scripts")
    here = ["theirs/__init__.py", "theirs/more.py", "train_here.py"]
    assert local_files("train_here") == here


def test_imported_package_with_metadata_is_no_code_of_the_user(place: Path) -> None:
    write(
        place,
        {
            "theirs_too/__init__.py": "",
            "own_helper_too.py": "import theirs_too, msgspec\n",
        },
    )
    write(place, {"theirs_too-1.0.dist-info/RECORD": "theirs_too/__init__.py,,\n"})
    before = {*sys.modules}
    import_module("own_helper_too")
    code = imported_code(before)
    assert [file.name for file in code.files] == ["own_helper_too.py"]
    assert code.packages == {"theirs_too", "msgspec"}
