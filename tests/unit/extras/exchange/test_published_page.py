"""The commands of docs/share.md make a report of published times."""

import re
import shutil
from pathlib import Path

import pytest
from hpml_jobs.report.key_numbers import key_numbers

from hpml_jobs.cli.main import run
from hpml_jobs.extras.exchange.csv_columns import COLUMNS
from tests.unit.builders import a_cell, a_record

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


def test_page_names_every_number(page):
    listed = set(re.findall(r"`(\w+)`", page.partition("\n### Numbers")[2]))
    lists = {
        "epoch_s_by_rank",
        "phases",
        "startup",
        "messages",
        "test_accuracy_by_rank",
    }
    texts = {"precision", "throttle_reasons", "gpu_bus_ids", "gpu_links"}
    assert {*key_numbers(a_record(a_cell()))} - lists - texts - listed == set()
