"""The list of studies, as a user types it."""

import errno
import os
from pathlib import Path

import pytest

from hpml_jobs.cli.main import run
from tests.unit.study_builder import StudyBuilder


@pytest.fixture
def study(laptop):
    """A study of three sizes."""
    return StudyBuilder(Path("outputs") / "mine").with_three_sizes()


def output_of(capsys, *words):
    assert run([*words]) == 0
    return capsys.readouterr().out


def test_study_that_may_not_be_read_is_listed_with_the_reason(
    study, monkeypatch, capsys
):
    private = StudyBuilder(Path("outputs") / "private").study.root.resolve()
    real_stat, real_open = os.stat, os.open

    def refusing(call):
        def guarded(path, *args, **options):
            if (
                isinstance(path, str | Path)
                and private in Path(path).absolute().parents
            ):
                raise PermissionError(
                    errno.EACCES, os.strerror(errno.EACCES), str(path)
                )
            return call(path, *args, **options)

        return guarded

    monkeypatch.setattr(os, "stat", refusing(real_stat))
    monkeypatch.setattr(os, "open", refusing(real_open))
    listed = output_of(capsys, "list")
    assert [line.split()[0] for line in listed.splitlines()[1:]] == ["mine", "private"]
    assert "Permission denied" in listed
    assert "3 ok" in listed
