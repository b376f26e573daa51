"""Every relative link of a page, and every page that code names, leads to a file and a heading."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / "tests" / folder / "README.md" for folder in ("", "benchmarks", "rig")),
    ROOT / "locks" / "README.md",
]
CODE = [
    *(ROOT / name for name in ("Makefile", "pyproject.toml", "CONTRIBUTING.md")),
    *(
        path
        for folder in ("hpml_jobs", "conf", "sbatch", "tests", "docs", "locks")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in {".py", ".yaml", ".sh", ".sbatch", ".md"}
    ),
]
NAMED = re.compile(r"\bdocs/([\w/]+\.(?:md|csv|json))(?:#([\w-]+))?")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(page):
    """The anchors of a page's headings, as GitHub forms them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.M)
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {text.strip().replace(" ", "-") for text in words}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_relative_link_leads_somewhere(page):
    for target in LINK.findall(page.read_text()):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), target


def test_every_page_that_a_file_names_is_there():
    for path in CODE:
        for name, anchor in NAMED.findall(path.read_text()):
            page = ROOT / "docs" / name
            assert page.is_file(), f"{path}: docs/{name}"
            assert not anchor or anchor in anchors(page), (
                f"{path}: docs/{name}#{anchor}"
            )
