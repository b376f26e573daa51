"""Fixtures of report tests."""

from pathlib import Path

import pytest

from hpml_jobs.core.check_result import CheckResult
from tests.unit.study_builder import StudyBuilder

Checks = dict[str, tuple[CheckResult, ...]]


@pytest.fixture
def given_checks(monkeypatch) -> Checks:
    """Results of checks by slug, for a test to fill: no other check is made."""
    checks: Checks = {}
    monkeypatch.setattr("hpml_jobs.checks.check_study", lambda records: checks)
    return checks


@pytest.fixture
def no_checks(given_checks) -> None:
    """No check is made: the times of the test are beyond what its hardware can do."""


@pytest.fixture
def builder(tmp_path: Path) -> StudyBuilder:
    """A study folder to fill."""
    return StudyBuilder(tmp_path / "lab-greene-v100")
