"""docs/measured.md: its counts are those of the files that it summarizes."""

import csv
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
