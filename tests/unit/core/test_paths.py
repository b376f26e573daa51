"""Paths that a user typed."""

import pytest

from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.paths import resolve_path


def test_path_with_a_variable_that_is_not_set_is_refused(monkeypatch):
    monkeypatch.delenv("SCRATCH", raising=False)
    with pytest.raises(UsageError, match=r"^\$SCRATCH/runs: the variable is not set"):
        resolve_path("$SCRATCH/runs")
