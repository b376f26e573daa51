"""Curves from iterations.npz: every iteration in curves.csv."""

import io

import pandas as pd

from hpml_jobs.report.files.frames import curves_csv
from tests.unit.training_runs import two_gpu_cell_with_curves


def curves_frame(builder):
    return pd.read_csv(
        io.StringIO(curves_csv(builder.collect())), keep_default_na=False
    )


def test_curves_csv_has_every_iteration_of_every_epoch(builder):
    two_gpu_cell_with_curves(builder)
    found = curves_frame(builder)
    assert list(found["iteration"]) == list(range(1, 148))
    assert list(found["epoch"].unique()) == [1, 2, 3]
    assert list(found["role"].unique()) == ["warmup", "timed", "instrumented"]
    first = found.iloc[0]
    # mean, max over ranks
    assert (first["loss"], first["step_s"], first["lr"]) == (
        2.5,
        0.02,
        0.1,
    )
    assert (first["strategy"], first["gpus"], first["batch"], first["every"]) == (
        "ddp",
        2,
        512,
        1,
    )


def test_curves_csv_long_run_is_thinned_and_noted(builder):
    """Of very many iterations every k-th is written, and a note gives k."""
    two_gpu_cell_with_curves(builder)
    two_gpu_cell_with_curves(builder, seed=1)
    text = curves_csv(builder.collect(), max_rows=100)
    rows = [line.split(",") for line in text.splitlines()[1:]]
    assert {row[-1] for row in rows} == {"3"}  # 294 iterations, 100 rows
    assert [int(row[10]) for row in rows[:49]] == list(range(1, 148, 3))
    assert len(rows) == 98
