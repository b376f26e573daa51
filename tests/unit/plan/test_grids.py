"""Grids whose blocks are for one device, and the training paths that grids sweep."""

import pytest

from hpml_jobs.plan.sweep import expand


def swept(*words, key, config_dir=None):
    """The values of a key over the sweep, and the sentences on the way."""
    sweep = expand([*words, "cluster=local"], multirun=False, config_dir=config_dir)
    return [getattr(settings, key) for settings in sweep.settings], sweep.notes


PRECISIONS = """\
blocks:
  - {gpus: [1, 4], precision: [fp32, bf16], strategy: [ddp]}
  - {gpus: [1, 4], precision: [tf32, fp16], strategy: [ddp], only_on: cuda}
  - {gpus: [1, 4], precision: [bf16], compile: [true], strategy: [ddp], only_on: cuda}
"""
PRECISION = ("grid=own", "gpus=2", "workload=digits")


def test_precisions_that_a_cpu_lacks_are_left_out(grids):
    own = grids(PRECISIONS)
    values, notes = swept(*PRECISION, "device=cpu", key="precision", config_dir=own)
    assert values == ["fp32", "bf16"]
    assert notes == [
        "device=cpu: this grid's cells for CPUs",
    ]
    values, notes = swept(*PRECISION, "device=cuda", key="precision", config_dir=own)
    assert values == ["fp32", "bf16", "tf32", "fp16", "bf16"]  # the last one compiled
    assert notes == []


def test_values_on_the_command_line_make_blocks_equal(grids):
    own = grids(PRECISIONS)
    for device in ("cpu", "cuda"):
        words = (*PRECISION, f"device={device}", "precision=bf16")
        values, notes = swept(*words, key="precision", config_dir=own)
        assert {*values} == {"bf16"}
        assert len(values) == (2 if device == "cuda" else 1)  # a compiled row
        assert len(notes) == (device == "cpu")


def test_batch_and_global_batch_replace_each_other_in_a_grid(grids):
    own = grids("blocks: [{gpus: [2], global_batch: [512], strategy: [ddp]}]")
    words = ("device=cpu", "workload=digits", "cluster=local")
    sweep = expand(["grid=own", "batch=8", *words], multirun=False, config_dir=own)
    assert {settings.batch for settings in sweep.settings} == {8}
    assert {settings.global_batch for settings in sweep.settings} == {None}
    assert "global_batch" not in sweep.origins
    sweep = expand(["grid=smoke", "global_batch=64", "gpus=2", *words], multirun=False)
    assert {settings.batch for settings in sweep.settings} == {32}
    assert "batch" not in sweep.origins


def test_iterations_replace_the_length_of_a_grid():
    words = ("device=cpu", "workload=digits", "iterations=10")
    values, _ = swept("grid=smoke", *words, key="data")
    assert [data.limit for data in values] == [640, 1280]
    values, _ = swept("grid=shuffling", *words, key="epochs")
    assert {*values} == {None}


@pytest.fixture
def grids(tmp_path):
    """A folder of a user's own grids: write(TEXT) makes grid=own."""
    (tmp_path / "grid").mkdir()

    def write(text):
        (tmp_path / "grid" / "own.yaml").write_text(text)
        return tmp_path

    return write
