"""The keys of the training path: identity of a cell, words, refusals, conditions."""

import re

import msgspec
import pytest

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.training_path import CompileMode, Precision, TrainingPath
from hpml_jobs.results.conditions import measured_conditions, requested_conditions
from tests.unit.builders import V100, a_cell, a_record

PATHS = {
    "bf16": TrainingPath(precision=Precision.BF16),
    "channels_last": TrainingPath(channels_last=True),
    "accumulate 4": TrainingPath(accumulate=4),
    "compiled max-autotune": TrainingPath(compile=CompileMode.MAX_AUTOTUNE),
}


def test_default_path_leaves_the_cell_unchanged():
    assert a_cell(path=TrainingPath()) == a_cell()


@pytest.mark.parametrize("label", PATHS)
def test_path_is_in_hash_slug_and_treatment(label):
    plain, cell = a_cell(), a_cell(path=PATHS[label])
    assert cell.digest != plain.digest
    part = (
        re.sub(r"[ -]", "_", label).replace("e_4", "e4").replace("compiled", "compile")
    )
    assert f"-{part}-" in cell.slug
    assert cell.treatment == label
    assert requested_conditions(cell) == requested_conditions(plain)


def test_fields_of_versions_before_1_0_are_ignored_but_by_the_name():
    text = {"accumulate": 2, "bucket_cap_mb": None, "static_graph": False}
    assert msgspec.convert(text, TrainingPath) == TrainingPath(accumulate=2)


def test_accumulated_batches_make_the_global_batch():
    cell = a_cell(gpus=2, batch=64, path=TrainingPath(accumulate=4))
    assert cell.global_batch == 512


def test_single_cell_is_the_baseline_of_its_path():
    assert all(a_cell(gpus=1, path=path).is_baseline for path in PATHS.values())
    assert not a_cell(path=PATHS["bf16"]).is_baseline


def conditions_of(cell: Cell, **facts):
    record = a_record(cell, facts=msgspec.structs.replace(V100, **facts))
    return measured_conditions(record)


def test_modes_that_a_path_sets_are_no_other_conditions():
    plain = conditions_of(a_cell())
    fp32 = a_cell(path=TrainingPath(precision=Precision.FP32))
    assert conditions_of(fp32, tf32_cudnn=False) == plain
    tf32 = a_cell(path=TrainingPath(precision=Precision.TF32))
    assert conditions_of(tf32, tf32_matmul=True) == plain


def test_modes_that_no_key_set_are_other_conditions():
    plain = conditions_of(a_cell())
    assert conditions_of(a_cell(), tf32_matmul=True) != plain
    assert conditions_of(a_cell(), cudnn_benchmark=False) != plain
    fp32 = a_cell(path=TrainingPath(precision=Precision.FP32))
    assert conditions_of(fp32, tf32_matmul=True) != plain
