"""Invalid records: every command names them, and none averages them."""

import json
from typing import Any

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.cell import Outcome
from hpml_jobs.status.states import cell_states
from hpml_jobs.study.files import encode
from tests.unit.builders import lab_cell, lab_record
from tests.unit.study_builder import StudyBuilder

Values = dict[str, Any]


def edit_values(change):
    """The record's JSON with its values changed; NaN and infinities as Python writes them."""

    def spoil(text):
        values = json.loads(text)
        change(values)
        return json.dumps(values).encode()

    return spoil


def edit_timed_epoch(**fields):
    """Rank 2's timed epoch with other values."""
    return edit_values(lambda values: values["ranks"][2]["epochs"][1].update(fields))


BAD = {
    "nan": (
        edit_timed_epoch(epoch_s=float("nan")),
        "is not a whole record: JSON is malformed",
    ),
    "negative": (
        edit_timed_epoch(epoch_s=-1.0),
        "ranks[2].epochs[1].epoch_s is negative: -1.0",
    ),
    "newer_schema": (
        edit_values(lambda v: v.update(schema=99)),
        "has record schema 99, this hpml_jobs",
    ),
    "half": (lambda text: text[: len(text) // 2], "is not a whole record"),
    "of_another_cell": (
        lambda text: text.replace(b'"slug": "ddp-4gpu', b'"slug": "ddp-8gpu'),
        "is the record of ddp-8gpu",
    ),
}


@pytest.fixture(params=BAD)
def study_with_invalid_record(request, working_folder):
    """Two repeats of a cell and its baseline, the second repeat's record spoilt; its slug, why."""
    builder = StudyBuilder(working_folder / "outputs" / "mine")
    builder.with_record(lab_record(lab_cell(1, 128), 27.0))
    builder.with_record(lab_record(lab_cell(4, 128), 20.0))
    whole = lab_record(lab_cell(4, 128, repeat=1), 10.0)
    slug = builder.with_record(whole).slug
    spoil, words = BAD[request.param]
    text = encode(whole)
    assert spoil(text) != text
    builder.study.cell(slug).record_json.write_bytes(spoil(text))
    return builder, slug, words


def test_status_of_invalid_record_gives_reason(
    slurm,
    study_with_invalid_record,
    capsys,
):
    builder, slug, words = study_with_invalid_record
    state = next(state for state in cell_states(builder.study) if state.slug == slug)
    assert (state.outcome, state.recorded, state.checks) == (Outcome.INVALID, False, ())
    assert words in state.reason
    assert run(["status", "mine"]) == 0
    assert "3 cells: 2 ok, 1 invalid" in capsys.readouterr().out
    assert run(["status", "mine", "--strict"]) == 1


def test_collect_names_invalid_record_and_omits_its_numbers(
    study_with_invalid_record,
):
    builder, slug, words = study_with_invalid_record
    builder.report_states = {}
    table = builder.table("table1-ddp")
    line = next(line for line in table.lines if line.label == "4-GPU")
    # the other repeat alone: no median with 10 s
    assert line.texts == (
        "20.00",
        "1.35 [1.34, 1.36]",
    )
    assert any(words in note and slug in note for note in table.notes)
