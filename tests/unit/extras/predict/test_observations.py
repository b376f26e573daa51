"""Rows as observations, by hand from the raw values of their records."""

import msgspec
import pytest

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.training_path import Precision, TrainingPath
from hpml_jobs.extras.predict.rules import observation
from hpml_jobs.results.cells import CellResult
from hpml_jobs.results.rows import make_rows
from tests.unit.builders import a_cell, a_record


def observed(*records):
    """The observation of the one row that the records make."""
    cells = [
        CellResult(
            slug=record.slug, cell=record.cell, record=record, outcome=Outcome.OK
        )
        for record in records
    ]
    (row,) = make_rows(cells)
    return observation(row, [cell.slug for cell in cells], is_imported=False)


def test_observation_has_medians_over_runs_per_iteration():
    runs = [
        a_record(a_cell(repeat=r), f"{r}.r0", epoch_s)
        for r, epoch_s in enumerate((8.0, 9.0, 12.0))
    ]
    made = observed(*runs)
    iterations = 10  # 20,480 samples at batch 512 on 4
    assert (made.gpus, made.batch, made.runs) == (4, 512, 3)
    assert made.step_s == pytest.approx(9.0 / iterations)
    assert made.cells == tuple(run.slug for run in runs)


def test_observation_without_an_iteration_is_none():
    record = a_record(a_cell())
    ranks = tuple(
        msgspec.structs.replace(
            rank,
            epochs=tuple(
                msgspec.structs.replace(epoch, steps=None) for epoch in rank.epochs
            ),
        )
        for rank in record.ranks
    )
    assert observed(msgspec.structs.replace(record, ranks=ranks)) is None


def test_observation_has_the_place_of_its_row_and_the_samples_of_an_iteration():
    path = TrainingPath(precision=Precision.BF16, accumulate=4)
    made = observed(a_record(a_cell(path=path, batch=64)))
    assert (made.accumulate, made.kind.path) == (4, "bf16, accumulate 4")
    assert made.kind.treatment == made.kind.path
    assert made.samples == 4 * 64 * 4
