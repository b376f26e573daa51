"""Curves from iterations.npz: damage is a note, and the curves of other runs are kept."""

import zipfile

import numpy as np
import pytest

from hpml_jobs.report.lab.replicas import unreadable
from hpml_jobs.results.iterations import by_run
from tests.unit.training_runs import two_gpu_cell_with_curves, write_curves


def notes(builder):
    """The notes on curves of a study of one group that cannot be read."""
    return unreadable(builder.collect().groups[0].source)


def corrupt_first_array(path):
    """Damage the bytes of the first array."""
    with zipfile.ZipFile(path) as file:
        at = file.infolist()[0].header_offset + 200
    content = bytearray(path.read_bytes())
    content[at : at + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(content)


def arrays_of(value):
    """The right names, with one value."""
    return dict.fromkeys(("curve_loss", "curve_step_s", "curve_lr"), value)


NO_NUMBERS = "iterations.npz cannot be read: "
DAMAGE = {
    "gone": (lambda path: path.unlink(), "is missing"),
    "flipped": (corrupt_first_array, "cannot be read: Bad CRC-32"),
    "pickles": (lambda path: np.savez(path, **arrays_of(np.array([{}]))), NO_NUMBERS),
    "text": (
        lambda path: np.savez(path, **arrays_of(np.array(["x"]))),
        "curve_loss is 1",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_curves_damaged_file_is_noted_and_others_are_kept(builder, kind):
    two_gpu_cell_with_curves(builder)
    bad = two_gpu_cell_with_curves(builder, batch=128)
    damage, words = DAMAGE[kind]
    damage(builder.study.cell(bad).iterations)
    (note,) = notes(builder)
    assert note.startswith("no curves: ")
    assert words in note
    assert note.endswith(": 2 GPUs at batch 128")
    readable, _ = by_run(
        builder.collect().groups[0].source.timed, lambda curve: curve.epochs
    )
    assert [slug.split("-")[2] for slug in readable] == ["b512"]


def test_curves_of_other_length_than_record_are_rejected(builder):
    write_curves(builder, two_gpu_cell_with_curves(builder), curve_lr=np.zeros(3))
    assert notes(builder) == [
        "no curves: iterations.npz: curve_lr is 3, its record has 2 x 147 (ranks x iterations): "
        "2 GPUs at batch 512",
    ]
