"""Fixtures of report tests."""

from pathlib import Path

import pytest

from hpml_jobs.checks import CheckResult
from tests.unit.study_builder import StudyBuilder


@pytest.fixture(autouse=True)
def ruling(monkeypatch):
    """Verdicts by slug, for a test to fill; hand-made records are judged by nothing else."""
    given: dict[str, tuple[CheckResult, ...]] = {}
    monkeypatch.setattr("hpml_jobs.checks.check_study", lambda records: given)
    return given


@pytest.fixture
def builder(tmp_path: Path) -> StudyBuilder:
    """A study folder to fill."""
    return StudyBuilder(tmp_path / "lab-greene-v100")
