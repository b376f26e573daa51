"""Contradictions inside a record, each refused with its reason."""

import json

import pytest
from msgspec.structs import replace

from hpml_jobs.core.validation import InvalidRecordError, decode
from hpml_jobs.study.files import encode
from tests.unit.builders import a_cell, a_record
from tests.unit.check_cases import imported_record

CELL = a_cell(evaluate=True)


def json_of(record, change):
    """The record's JSON after `change` of its values."""
    values = json.loads(encode(record))
    change(values)
    return encode(values)


def set_share(values, **fields):
    values["ranks"][1]["epochs"][0]["share"] |= fields


def remove_shares(values):
    for rank in values["ranks"]:
        rank["epochs"][1]["share"] = None


CASES = {
    "images unknown": (
        encode(
            replace(
                a_record(CELL),
                cell=a_cell(workload=replace(CELL.workload, images=None)),
            )
        ),
        "the number of training images is missing",
    ),
    "epoch not evaluated": (
        json_of(a_record(CELL), remove_shares),
        "epoch 2 was not evaluated",
    ),
    "part of the test set": (
        json_of(a_record(CELL), lambda values: set_share(values, samples=74)),
        "all ranks together tested 299 images after epoch 1, not 300",
    ),
    "no phases": (
        json_of(
            a_record(CELL), lambda values: values["ranks"][0]["epochs"][2].pop("phases")
        ),
        "the instrumented epoch has no phases",
    ),
    "other closure": (
        json_of(
            a_record(CELL),
            lambda values: values["ranks"][0]["epochs"][2].update(closure=0.5),
        ),
        "closure 0.5 is not that of the phases",
    ),
    "timing and measurement": (
        encode(replace(imported_record(), ranks=a_record(CELL).ranks)),
        "an imported timing and a measurement in one record",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_contradictory_record_is_refused(case):
    text, reason = CASES[case]
    with pytest.raises(InvalidRecordError) as refused:
        decode(text, "record.json")
    assert reason in str(refused.value)
