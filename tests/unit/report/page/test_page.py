"""The page of a study: its order, its HTML, its words for every kind of study, escaped texts."""

import re

import pytest
from msgspec.structs import replace

from hpml_jobs.core.cell import Outcome
from hpml_jobs.lab.questions import section
from hpml_jobs.report.page import contents as page
from tests.unit.builders import lab_cell
from tests.unit.report.frame.test_style import contrast
from tests.unit.report.page.html_checker import faults, parse
from tests.unit.study_builder import StudyBuilder

SECTIONS = [
    "Questions of the lab",
    "Warnings",
    "More tables",
    "More pictures",
    "Words",
    "Environment",
    "Commands",
]
HOSTILE = '<script>alert("x")</script> & <b>|`'


def files_of(report):
    """The files of the page as collect writes them."""
    return page.files(report, section)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The report of the lab's published study, with phases, messages and a failed cell."""
    builder = StudyBuilder(tmp_path_factory.mktemp("page") / "lab-greene-v100")
    builder.with_published_study(stall_s=0.4, but=((4, 32),))
    builder.with_cell(lab_cell(4, 32), Outcome.FAILED, f"failed: {HOSTILE}")
    return replace(builder.collect(), commands=("hpml-jobs -m grid=lab",))


@pytest.fixture(scope="module")
def files(published):
    """Both files of the page."""
    return files_of(published)


@pytest.fixture(scope="module")
def root(files):
    tree, _ = parse(files["report.html"])
    return tree


def test_page_is_valid_html_without_requests(files):
    assert faults(files["report.html"]) == []


def test_page_sections_are_in_order_of_reading(root):
    assert [heading.text for heading in root.every("h2")] == SECTIONS
    links = [link.get("href") for link in next(root.every("nav")).every("a")]
    titles = [heading.get("id") for heading in root.every("h2")]
    assert links == [f"#{title.removesuffix('-title')}" for title in titles]


def test_page_escapes_every_text(files, root):
    assert "<script" not in files["report.html"]
    assert any(HOSTILE in item.text for item in root.every("li"))


# ---- colours ----

THEMES = {"light": 0, "dark": 1, "print": 2}


def theme(html, number):
    """The CSS variables of a theme: those of the first :root, replaced by its own."""
    blocks = re.findall(r":root \{(.*?)\}", html, re.S)
    pairs = [re.findall(r"(--[\w-]+):\s*(#[0-9a-fA-F]{6})", block) for block in blocks]
    return {**dict(pairs[0]), **dict(pairs[number])}


@pytest.mark.parametrize("name", THEMES)
def test_page_colours_have_contrast_aa(files, name):
    colours = theme(files["report.html"], THEMES[name])
    words = ("text", "quiet", "link", "accent", "fail", "warn")
    for background in ("page", "card"):
        for word in words:
            ratio = contrast(colours[f"--{word}"], colours[f"--{background}"])
            assert ratio >= 4.5, (word, background, ratio)
