"""CITATION.cff is valid and is about the released version."""

import re
from datetime import date
from pathlib import Path

import yaml

from hpml_jobs import __version__

ROOT = Path(__file__).parents[3]


def test_citation_agrees_with_package_and_changelog():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    releases = re.findall(
        r"^## (\d+\.\d+\.\d+)(?: \((\S+)\))?$",
        (ROOT / "CHANGELOG.md").read_text(),
        re.MULTILINE,
    )
    version, day = releases[0]
    assert str(citation["version"]) == version == __version__
    assert citation["date-released"] == date.fromisoformat(day)
