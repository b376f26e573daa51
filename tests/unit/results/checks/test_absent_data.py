"""A check whose data is absent from a record gives no result, and never an error."""

import pytest
from msgspec.structs import replace

from hpml_jobs.results.checks.study import check_record
from tests.unit.check_cases import (
    OF_CARDS,
    change_rank,
    clean_record,
)


def change_epochs(**fields):
    """Every epoch of every rank with other fields."""

    def change(old):
        ranks = [
            replace(
                rank, epochs=tuple(replace(epoch, **fields) for epoch in rank.epochs)
            )
            for rank in old.ranks
        ]
        return replace(old, ranks=tuple(ranks))

    return change


def change_workload(**fields):
    def change(old):
        workload = replace(old.cell.workload, **fields)
        return replace(old, cell=replace(old.cell, workload=workload))

    return change


def change_record(**fields):
    return lambda old: replace(old, **fields)


ABSENT = {
    "parameters not claimed": (change_workload(parameters=None), {"parameters"}),
    "no model": (
        change_record(model=None),
        {"parameters", "messages", "buffers"},
    ),
    "other loss": (change_workload(loss="mse"), {"loss"}),
    "images unknown": (change_workload(images=None), {"short"}),
    "no affinity": (change_rank(2, affinity=()), {"oversubscribed"}),
    "no accounts of the system": (
        change_epochs(scheduling=None),
        {"disturbed"},
    ),
}


@pytest.mark.parametrize("case", ABSENT)
def test_check_without_its_data_gives_no_result(case):
    change, absent = ABSENT[case]
    complete = {result.check for result in check_record(clean_record())}
    incomplete = {result.check for result in check_record(change(clean_record()))}
    assert complete - incomplete - OF_CARDS == absent
