"""Installed packages are known by their metadata, wherever they are, and are never parsed."""

import json
import sys
from importlib import import_module
from pathlib import Path
from zipfile import ZipFile

import pytest

from hpml_jobs.core import installed, source_files
from hpml_jobs.core.source_files import imported_code, refuse_changed

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
METADATA = {
    "pip --target": {"theirs-1.0.dist-info/RECORD": RECORD},
    "no RECORD": {"theirs-1.0.dist-info/top_level.txt": "theirs\nsingle\n"},
    "egg": {"EGG-INFO/top_level.txt": "theirs\nsingle\n"},
    "old pip": {
        "theirs.egg-info/top_level.txt": "theirs\nsingle\n",
        "theirs.egg-info/installed-files.txt": "",
    },
    "setup.py develop": {"theirs.egg-info/top_level.txt": "theirs\nsingle\n"},
}


@pytest.mark.parametrize("files", METADATA.values(), ids=METADATA)
def test_package_with_metadata_beside_it_is_not_parsed(
    place: Path, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in the same folder that no metadata names is the user's."""
    write(place, PACKAGE | {"single.py": "", "own_helper.py": "import json\n"} | files)
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
    write(place / "src", {"theirs.egg-info/top_level.txt": "theirs\n"})
    installed._developed.cache_clear()
    assert local_files("train_here") == here


def test_projects_in_place_are_read_from_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origins = {
        "edited": {
            "url": f"file://{tmp_path}/my%20project",
            "dir_info": {"editable": True},
        },
        "copied": {"url": f"file://{tmp_path}/other", "dir_info": {}},
        "cloned": {
            "url": "https://host/x.git",
            "vcs_info": {"vcs": "git", "commit_id": "1"},
        },
    }
    texts = {name: json.dumps(origin) for name, origin in origins.items()} | {
        "broken": "{",
        "": "",
    }
    for name, text in texts.items():
        about = {
            "METADATA": f"Name: {name or 'plain'}\n",
            **({"direct_url.json": text} if text else {}),
        }
        write(tmp_path / f"{name or 'plain'}-1.dist-info", about)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert [*installed._read_projects()] == [tmp_path / "my project"]


def test_zip_on_the_path_has_no_files(place: Path) -> None:
    with ZipFile(place, "w") as archive:
        archive.writestr("theirs/__init__.py", "")
    assert local_files() == ["train_there.py"]


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


@pytest.mark.parametrize(("limit", "value"), [("MOST_FILES", 3), ("MOST_BYTES", 40)])
def test_parsing_has_a_limit_that_is_said_once(
    place: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    write(place, {"train_much.py": "import m0, m1, m2, m3, m4\n"})
    write(place, {f"m{number}.py": "x = 10000\n" for number in range(5)})
    monkeypatch.setattr(source_files, limit, value)
    lines: list[str] = []
    files = source_files.source_files(["train_much"], place, lines.append)
    assert [file.name for file in files] == ["m3.py", "m4.py", "train_much.py"]
    assert len(lines) == 1
    assert (
        "only 3 local files (4.6e-05 MB) that are imported are part of the cells, not m2.py"
        in lines[0]
    )


def test_line_of_changed_files_is_short() -> None:
    with pytest.raises(
        Exception, match=r"m0.py, m1.py, m2.py, m3.py, m4.py and 995 more; submit"
    ):
        refuse_changed(f"m{number}.py" for number in range(1000))
