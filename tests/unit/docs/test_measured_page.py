"""docs/measured.md: its counts are those of the files that it summarizes."""

import csv
import json
from pathlib import Path

ROOT = Path(__file__).parents[3]
WORDS = " ".join((ROOT / "docs" / "measured.md").read_text().split())


def test_faults_are_those_of_the_csv():
    with (ROOT / "docs" / "faults.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    versions = sorted({row["version"] for row in rows})
    first, second, third = versions
    assert f"In {len(rows)} studies of versions {first}, {second} and {third}:" in WORDS
    for row in rows:
        counts = (row["lost_cells"], row["invented_numbers"], row["processes_left"])
        assert counts == ("0", "0", "0"), row


def test_every_raw_table_has_a_version_and_whole_rows():
    tables = json.loads((ROOT / "docs" / "measured.json").read_text())
    for name, table in tables.items():
        if name != "about":
            assert table["version"], name
            assert table["command"], name
            assert {len(row) for row in table["rows"]} == {len(table["columns"])}, name
