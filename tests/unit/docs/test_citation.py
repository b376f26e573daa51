"""CITATION.cff is valid and is about the released version."""

import re
from datetime import date
from pathlib import Path

import yaml

from hpml_jobs import __version__

ROOT = Path(__file__).parents[3]

KEYS_1_2_0 = {
    *(
        "abstract",
        "authors",
        "cff-version",
        "commit",
        "contact",
        "date-released",
        "doi",
    ),
    *(
        "identifiers",
        "keywords",
        "license",
        "license-url",
        "message",
        "preferred-citation",
    ),
    *(
        "references",
        "repository",
        "repository-artifact",
        "repository-code",
        "title",
        "type",
    ),
    *("url", "version"),
}
"""The keys that the schema of CFF 1.2.0 allows."""


def test_citation_has_the_keys_of_cff_1_2_0():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= citation.keys() <= KEYS_1_2_0
    assert citation["type"] == "software"
    assert all(
        author.keys() & {"name", "family-names"} for author in citation["authors"]
    )
    assert all(isinstance(word, str) for word in citation["keywords"])
    assert citation["license"] in (ROOT / "LICENSE").read_text()


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
