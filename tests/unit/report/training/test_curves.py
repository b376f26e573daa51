"""Curves from iterations.npz: every iteration in the CSV, ends in another, damage in a note."""

import io
import zipfile

import numpy as np
import pandas as pd
import pytest

from hpml_jobs.core.cell import Protocol
from hpml_jobs.report.files.csv_tables import curves_csv
from hpml_jobs.report.folder import write_tables
from tests.unit.builders import lab_cell, lab_record


def write_curves(builder, slug, **changes):
    """Write the arrays a worker leaves beside a record: loss falls from 2 to 1, steps of 10 ms."""
    folder = builder.study.cell(slug)
    record = folder.read_record()
    trained = [epoch for epoch in record.ranks[0].epochs if epoch.role != "unsynced"]
    ranks, iterations = len(record.ranks), sum(epoch.iterations for epoch in trained)
    loss = np.linspace(2, 1, iterations, dtype=np.float32)
    arrays = {
        "curve_loss": np.stack([loss + rank for rank in range(ranks)]),
        "curve_step_s": np.stack([np.full(iterations, 0.01 * (r + 1)) for r in range(ranks)]),
        "curve_lr": np.full((ranks, iterations), 0.1),
        "step_s": np.zeros((ranks, 1)),
    }
    np.savez(folder.iterations, **(arrays | changes))
    return slug


def two_gpu_cell_with_curves(builder, batch=512, **changes):
    """A cell on 2 GPUs with its record and arrays: 3 epochs of 49 iterations."""
    return write_curves(
        builder, builder.with_record(lab_record(lab_cell(2, batch, **changes), 20.0)).slug
    )


def curves_frame(builder):
    return pd.read_csv(io.StringIO(curves_csv(builder.collect())), keep_default_na=False)


CURVE_ENDS = pytest.approx((2.4555, 1.5445, 0.408, 0.408, 0.408, 0.408), abs=5e-4)
"""Losses of the first and last tenth; median and 90th percentile of steps, ends of a tenth."""


def test_curve_ends_have_first_and_last_values(builder):
    two_gpu_cell_with_curves(builder)
    # of 147 iterations the first and last 14, losses of ranks one apart: 2.5 - 6.5 / 146
    (row,) = builder.sheet("curve-ends").rows
    assert row[:6] == ("ddp", "2-GPU", 2, 1, "", 512)
    assert row[6:] == CURVE_ENDS


def test_iterations_are_counted_without_the_first(builder):
    slug = two_gpu_cell_with_curves(builder, epoch_iterations=49)
    steps = np.full((2, 147), 0.01)
    steps[:, 49] = 5.0  # of the timed epoch
    steps[1, 50:98] = 0.02
    write_curves(builder, slug, curve_step_s=steps)
    line = builder.table("iterations").lines[0]
    # losses 2 to 1 in 147 iterations, of ranks one apart: 2.5 - n / 146
    assert line.texts == ("20.0", "49", "2.3425", "2.1712")


def test_iterations_table_is_for_cells_that_count_them(builder):
    two_gpu_cell_with_curves(builder)
    assert "iterations" not in [table.label for table in builder.collect().groups[0].tables]


def test_curve_ends_omit_losses_of_shorter_runs(builder):
    two_gpu_cell_with_curves(builder)
    slug = two_gpu_cell_with_curves(builder, seed=1, protocol=Protocol.LAB, epochs=2)
    write_curves(builder, slug, curve_loss=np.full((2, 98), 9.0))
    (row,) = builder.sheet("curve-ends").rows
    assert row[6:] == CURVE_ENDS
    assert builder.table("replicas").notes == (
        "runs of 2 epochs are omitted, others have 3: ddp 2-GPU at batch 512",
    )


def test_curves_csv_has_every_iteration_of_every_epoch(builder):
    two_gpu_cell_with_curves(builder)
    found = curves_frame(builder)
    assert list(found["iteration"]) == list(range(1, 148))
    assert list(found["epoch"].unique()) == [1, 2, 3]
    assert list(found["role"].unique()) == ["warmup", "timed", "instrumented"]
    first = found.iloc[0]
    assert (first["loss"], first["step_s"], first["lr"]) == (2.5, 0.02, 0.1)  # mean, max over ranks
    assert (first["strategy"], first["gpus"], first["batch"], first["every"]) == ("ddp", 2, 512, 1)


def test_curves_csv_long_run_is_thinned_and_noted(builder):
    """Of very many iterations every k-th is written, and a note gives k."""
    two_gpu_cell_with_curves(builder)
    two_gpu_cell_with_curves(builder, seed=1)
    text = curves_csv(builder.collect(), max_rows=100)
    rows = [line.split(",") for line in text.splitlines()[1:]]
    assert {row[-1] for row in rows} == {"3"}  # 294 iterations, 100 rows
    assert [int(row[10]) for row in rows[:49]] == list(range(1, 148, 3))
    assert len(rows) == 98


def corrupt_first_array(path):
    """Damage the bytes of the first array."""
    with zipfile.ZipFile(path) as file:
        at = file.infolist()[0].header_offset + 200
    content = bytearray(path.read_bytes())
    content[at : at + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(content)


def write_single_array(path):
    with path.open("wb") as file:
        np.save(file, np.zeros(3))


def arrays_of(value):
    """The right names, with one value."""
    return dict.fromkeys(("curve_loss", "curve_step_s", "curve_lr"), value)


NO_NUMBERS = "iterations.npz is not a file of numbers per iteration"
DAMAGE = {
    "gone": (lambda path: path.unlink(), "is missing"),
    "half": (lambda path: path.write_bytes(path.read_bytes()[:300]), "cannot be read: "),
    "flipped": (corrupt_first_array, "cannot be read: Bad CRC-32"),
    "not arrays": (lambda path: path.write_bytes(b"no arrays at all"), NO_NUMBERS),
    "one array": (write_single_array, NO_NUMBERS),
    "pickles": (lambda path: np.savez(path, **arrays_of(np.array([{}]))), NO_NUMBERS),
    "text": (lambda path: np.savez(path, **arrays_of(np.array(["x"]))), NO_NUMBERS),
    "others": (lambda path: np.savez(path, step_s=np.zeros(3)), "has no curve_loss, curve_s"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_curves_damaged_file_is_noted_and_others_are_kept(builder, kind):
    two_gpu_cell_with_curves(builder)
    bad = two_gpu_cell_with_curves(builder, batch=128)
    damage, words = DAMAGE[kind]
    damage(builder.study.cell(bad).iterations)
    (note,) = builder.table("replicas").notes
    assert note.startswith("no curves: ")
    assert words in note
    assert note.endswith(": ddp 2-GPU at batch 128")
    assert set(curves_frame(builder)["batch"]) == {512}


def test_curves_of_other_length_than_record_are_rejected(builder):
    write_curves(builder, two_gpu_cell_with_curves(builder), curve_lr=np.zeros(3))
    assert "curve-ends" not in builder.collect().groups[0].sheets
    assert builder.table("replicas").notes == (
        "no curves: iterations.npz: curve_lr is 3, its record has 2 x 147 (ranks x iterations): "
        "ddp 2-GPU at batch 512",
    )


def test_study_without_curves_has_no_csv(builder):
    builder.with_published_study()
    assert curves_csv(builder.collect()) is None
    assert "curve-ends" not in builder.collect().groups[0].sheets


def test_collect_removes_csv_of_deleted_curves(builder):
    slug = two_gpu_cell_with_curves(builder, protocol=Protocol.LAB)
    write_tables(builder.collect(), builder.study.report)
    assert (builder.study.report / "curves.csv").read_text().count("\n") == 1 + 98
    builder.study.cell(slug).iterations.unlink()
    write_tables(builder.collect(), builder.study.report)
    assert not (builder.study.report / "curves.csv").exists()
