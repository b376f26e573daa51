"""A console that cannot show lines and bars shows question marks, and no traceback."""

import subprocess
import sys

from tests.unit.builders import a_cell, a_record
from tests.unit.study_builder import StudyBuilder


def test_tables_are_printed_in_ascii(working_folder, monkeypatch):
    builder = StudyBuilder(working_folder / "outputs" / "mine")
    for gpus in (1, 2):
        builder.with_record(a_record(a_cell(gpus=gpus)))
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = subprocess.run(
        [sys.executable, "-m", "hpml_jobs", "collect", "mine", "--all"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "?" in done.stdout
