"""The page of a study: its order, its HTML, its words for every kind of study, escaped texts."""

import re

import pytest
from msgspec.structs import replace

from hpml_jobs.core.cell import Outcome
from hpml_jobs.lab.questions import section
from hpml_jobs.report import page
from tests.unit.builders import V100, lab_cell, lab_record
from tests.unit.report.frame.test_style import contrast
from tests.unit.report.page.html_checker import faults, parse
from tests.unit.study_builder import StudyBuilder

SECTIONS = [
    "Questions of the lab",
    "Answer",
    "Table 1",
    "More pictures",
    "More tables",
    "Environment",
    "Commands",
]
HOSTILE = '<script>alert("x")</script> & <b>|`'


def files_of(report):
    """The files of the page as collect writes them."""
    return page.files(report, (section(report),))


def html_of(builder):
    """The page without pictures, which take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hpml_jobs.report.pictures.pictures", lambda report: {})
        return files_of(builder.collect())["report.html"]


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The report of the lab's published study, with phases, messages and a failed cell."""
    builder = StudyBuilder(tmp_path_factory.mktemp("page") / "lab-greene-v100")
    builder.with_published_study(stall_s=0.4, but=((4, 32),))
    builder.with_cell(lab_cell(4, 32), Outcome.FAILED, f"failed: {HOSTILE}")
    return builder.collect()


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


def test_page_says_once_how_many_runs_there_are(files):
    assert files["report.md"].count("One run, unless a table says otherwise.") == 1


def test_page_of_several_runs_says_nothing_of_one(builder):
    for gpus in (1, 2):
        for repeat, seconds in enumerate((26.0, 26.1, 26.2, 26.3)):
            cell = lab_cell(gpus, 512, repeat=repeat)
            builder.with_record(lab_record(cell, seconds / gpus))
    tree, _ = parse(html_of(builder))
    assert tree.text.count("Median of 4 runs, unless") == 1
    assert [dd.text for dd in tree.every("dd") if dd.text.startswith("!")] == []


def test_page_escapes_every_text(files, root):
    assert "<script" not in files["report.html"]
    assert any(HOSTILE in item.text for item in root.every("li"))


def test_page_escapes_names_of_hosts(builder):
    record = lab_record(lab_cell(1, 128), 27.0)
    ranks = tuple(replace(rank, host=HOSTILE) for rank in record.ranks)
    builder.with_record(replace(record, ranks=ranks))
    html = html_of(builder)
    assert faults(html) == []
    assert HOSTILE in [cell.text for cell in parse(html)[0].every("td")]


def test_markdown_has_the_same_headings(files):
    text = files["report.md"]
    assert re.findall(r"^## (.*)$", text, re.M) == SECTIONS
    assert not re.search(r"(?<!\\)<script", text)


def test_page_of_two_groups_has_a_section_each(builder):
    builder.with_published_study()
    other = replace(V100, gpu_model="NVIDIA H200")
    builder.with_record(lab_record(lab_cell(1, 64), 20.0, facts=other))
    builder.with_record(lab_record(lab_cell(2, 64), 11.0, facts=other))
    html = html_of(builder)
    assert faults(html) == []
    tree, _ = parse(html)
    titles = [heading.text for heading in tree.every("h2")]
    assert [title for title in titles if title.startswith("Group")] == [
        "Group 1: GPU model NVIDIA H200",
        "Group 2: GPU model Tesla V100-SXM2-16GB",
    ]


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ((), "This study has no cells yet."),
        ((lab_record(lab_cell(4, 128), 27.0),), "4 GPUs: 27.00 s per epoch"),
    ],
)
def test_page_of_incomplete_study_says_so(builder, cells, words):
    for record in cells:
        builder.with_record(record)
    html = html_of(builder)
    assert faults(html) == []
    assert words in parse(html)[0].text


def test_page_without_number_says_why(builder):
    builder.with_cell(lab_cell(1, 32), Outcome.FAILED, "failed: no disk")
    builder.with_cell(lab_cell(2, 32), Outcome.PENDING, "pending")
    html = html_of(builder)
    assert faults(html) == []
    text = parse(html)[0].text
    assert "No cell has a number." in text
    assert "failed: no disk" in text


def test_page_of_unreadable_cell_lists_it(builder):
    slug = builder.with_cell(lab_cell(8, 32)).slug
    builder.study.cell(slug).cell_json.write_bytes(b"{")
    html = html_of(builder)
    assert faults(html) == []
    assert slug in parse(html)[0].text


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
