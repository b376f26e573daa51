"""The commands of docs/share.md make a report of published times."""

import re
import shutil
from pathlib import Path

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.extras.exchange.csv_columns import COLUMNS

DOCS = Path(__file__).parents[4] / "docs"


@pytest.fixture
def page():
    return (DOCS / "share.md").read_text()


@pytest.fixture
def report(page, working_folder):
    """The report that the page's commands make, typed as they stand there."""
    (working_folder / "docs").mkdir()
    shutil.copy(DOCS / "published.csv", working_folder / "docs")
    words = re.findall(r"^hpml-jobs (.*published.*)$", page, re.MULTILINE)
    assert words == ["import docs/published.csv study=published", "collect published"]
    for command in words:
        assert run(command.split()) == 0
    return working_folder / "outputs" / "published" / "report"


def test_published_report_notes_values_not_reported(report):
    made = (report / "tables.md").read_text()
    assert "includes data loading" in made
    assert "DataLoader workers in total: unknown" in made


def test_published_page_explains_every_column(page):
    assert all(f"`{column}`" in page for column in COLUMNS)
