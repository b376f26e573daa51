"""Generated pages of docs/ are those that the code gives now."""

import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
SCRIPTS = [path for path in (DOCS / "generate").glob("*.py") if path.stem != "__main__"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_generated_page_is_current(script):
    page = runpy.run_path(str(script))["page"]()
    assert (DOCS / f"{script.stem}.md").read_text() == page, "run: make docs"
