"""The Python of docs/share.md runs: every example, with its output, on a study of published.csv."""

import doctest
import re
import shutil
from pathlib import Path

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.strategies import Device
from tests.unit.builders import a_cell, lab_record
from tests.unit.report.training.test_curves import write_curves
from tests.unit.study_builder import StudyBuilder

PAGE = Path(__file__).parents[3] / "docs" / "share.md"


@pytest.fixture
def studies(laptop, capsys):
    shutil.copy(PAGE.parent / "published.csv", "published.csv")
    assert run(["import", "published.csv", "study=published"]) == 0
    builder = StudyBuilder(Path("outputs") / "digits-local")
    write_curves(
        builder, builder.with_record(lab_record(a_cell(gpus=2, device=Device.CPU), 20.0)).slug
    )
    capsys.readouterr()


def test_page_examples_give_their_output(studies, capsys):
    blocks = "\n".join(re.findall(r"^```pycon\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.M))
    examples = doctest.DocTestParser().get_doctest(blocks, {}, PAGE.name, str(PAGE), 0)
    results = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(examples)
    assert results.attempted > 10
    assert results.failed == 0, capsys.readouterr().out
