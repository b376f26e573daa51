"""docs/formulas.md: its examples run, and it leaves out no formula and links no ghost."""

import doctest
import importlib
import inspect
import operator
import re
from pathlib import Path

import pytest

from hpml_jobs.core import formulas

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "formulas.md"
LINK = re.compile(r"\[([^]]+)\]\(([^)]+)\)")

FUNCTIONS = [
    name
    for name, function in inspect.getmembers(formulas, inspect.isfunction)
    if function.__module__ == formulas.__name__ and not name.startswith("_")
]


def examples():
    """The page's fenced code, at the line numbers it has there."""
    lines, fenced = [], False
    for line in PAGE.read_text().splitlines():
        fence = line.startswith("```")
        fenced ^= fence
        lines.append(line if fenced and not fence else "")
    return "\n".join(lines) + "\n"


def test_formulas_page_examples_give_the_printed_results():
    test = doctest.DocTestParser().get_doctest(examples(), {}, PAGE.name, str(PAGE), 0)
    said = []
    result = doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF).run(test, out=said.append)
    assert result.failed == 0, "".join(said)
    assert result.attempted > len(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_formulas_page_links_and_uses_every_formula(name):
    assert f"[`{name}`](../hpml_jobs/core/formulas.py)" in PAGE.read_text()
    assert f"{name}(" in examples()


def test_formulas_page_links_lead_to_named_functions():
    for words, target in LINK.findall(PAGE.read_text()):
        path = (PAGE.parent / target.partition("#")[0]).resolve()
        assert path.is_file(), target
        if path.suffix == ".py":
            module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            operator.attrgetter(words.strip("`"))(module)  # raises where there is no such thing
