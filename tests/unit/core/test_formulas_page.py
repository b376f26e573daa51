"""docs/formulas.md leaves out no formula and links no ghost."""

import inspect
import re
from pathlib import Path

import pytest

from hpml_jobs.core import formulas
from tests.unit.docs.test_examples import examples_of

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "formulas.md"
LINK = re.compile(r"\[([^]]+)\]\(([^)]+)\)")

FUNCTIONS = [
    name
    for name, function in inspect.getmembers(formulas, inspect.isfunction)
    if function.__module__ == formulas.__name__ and not name.startswith("_")
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_formulas_page_links_and_uses_every_formula(name):
    text = PAGE.read_text()
    assert f"[`{name}`](../hpml_jobs/core/formulas.py)" in text
    assert any(
        f"{name}(" in block for block in examples_of(text) if isinstance(block, str)
    )
