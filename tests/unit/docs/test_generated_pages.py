"""Generated files of docs/ are those that the code gives now."""

import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
SCRIPTS = [path for path in (DOCS / "generate").glob("*.py") if path.stem != "__main__"]


FILES = {
    name: text
    for script in SCRIPTS
    for name, text in runpy.run_path(str(script))["FILES"].items()
}


@pytest.mark.parametrize("name", FILES)
def test_generated_file_is_current(name):
    assert (DOCS / name).read_text() == FILES[name](), "run: make docs"


def test_generated_files_are_all_there():
    assert {"commands.md", "results.md", "gpu.csv", "measured.md"} == {*FILES}
