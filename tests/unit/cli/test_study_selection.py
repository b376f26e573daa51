"""Selection of a study and its cells by the arguments [STUDY] [PATTERN]."""

from typing import NamedTuple

import pytest

from hpml_jobs.cli.options import select_study
from hpml_jobs.errors import HpmlError, UsageError
from hpml_jobs.study.study import Study


class Named(NamedTuple):
    slug: str


CELLS = [Named("single-1gpu-b32-digits-1a2b3c"), Named("ddp-4gpu-b32-digits-4d5e6f")]


@pytest.fixture(autouse=True)
def outputs(working_folder):
    Study(working_folder / "outputs" / "mine").create()
    return working_folder / "outputs"


@pytest.mark.parametrize("words", [(None, None), ("mine", None)])
def test_no_pattern_selects_all_cells(words):
    selection = select_study(*words, None)
    assert (selection.study.name, selection.pattern) == ("mine", None)
    assert selection.chosen(CELLS) == CELLS


@pytest.mark.parametrize(
    "words",
    [("mine", "ddp-*"), ("*4gpu*", None), ("[d]dp-*", None), ("mine", CELLS[1].slug)],
)
def test_pattern_or_full_name_selects_cells(words):
    selection = select_study(*words, None)
    assert selection.study.name == "mine"
    assert selection.chosen(CELLS) == [CELLS[1]]


def test_pattern_without_match_lists_cells():
    with pytest.raises(
        HpmlError, match=r"no cell of study mine matches dp-\*; its cells: single-1gpu-b32"
    ):
        select_study("mine", "dp-*", None).chosen(CELLS)


def test_pattern_without_match_lists_at_most_ten_cells():
    cells = [Named(f"cell-{index}") for index in range(12)]
    with pytest.raises(HpmlError, match=r"cell-9, and 2 more$"):
        select_study("mine", "dp-*", None).chosen(cells)


def test_two_patterns_are_refused():
    with pytest.raises(UsageError, match="then a pattern"):
        select_study("ddp-*", "dp-*", None)
