"""The Python API: DataFrames of a study, its errors, and what it imports when."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import hpml_jobs
from hpml_jobs.report.files.csv_tables import sheets
from tests.unit.builders import RESNET, a_cell, a_record, lab_cell, lab_record
from tests.unit.study_builder import StudyBuilder
from tests.unit.training_runs import write_curves

ROOT = Path(__file__).parents[4]


@pytest.fixture
def builder(laptop):
    """Three sizes of one cell, a repeat, one that ran out of memory, and one without a record."""
    builder = StudyBuilder(Path("outputs") / "mine")
    for gpus, epoch_s in ((1, 8.0), (2, 4.4), (4, 4.0)):
        builder.with_record(
            a_record(a_cell(gpus=gpus, batch=128), f"10{gpus}_0.r0", epoch_s)
        )
    builder.with_record(a_record(a_cell(gpus=2, batch=128, repeat=1), "105_0.r0", 4.6))
    builder.with_out_of_memory(a_cell(gpus=4, batch=512))
    return builder.with_cell(a_cell(gpus=2, batch=512))


def test_cells_are_the_rows_of_cells_csv(builder):
    cells = hpml_jobs.open_study("mine").cells()
    header = sheets(builder.collect())["cells.csv"].splitlines()[0].split(",")
    assert [name for name in cells.columns if name in header] == header
    assert (
        cells[[name for name in cells.columns if name not in header]]
        .isna()
        .all(axis=None)
    )
    assert dict(cells["outcome"].value_counts()) == {"ok": 4, "missing": 1, "oom": 1}


def test_cells_have_speedup_and_efficiency_of_their_row(builder):
    cells = hpml_jobs.open_study("mine").cells().set_index(["gpus", "batch", "repeat"])
    assert cells.loc[(1, 128, 0), "speedup"] == 1
    assert (
        cells.loc[(2, 128, 0), "speedup"]
        == cells.loc[(2, 128, 1), "speedup"]
        == 8 / 4.5
    )
    assert cells.loc[(4, 128, 0), "efficiency"] == 0.5
    assert cells.loc[(2, 128, 1), "samples_per_s"] == pytest.approx(20_480 / 4.6)
    assert cells.loc[(4, 128, 0), "attempt_hosts"] == "gr001"
    assert set(cells["checks"].dropna()) <= {"pass", "warn", "fail"}
    assert cells.loc[(4, 512, 0), ["epoch_s", "speedup", "checks"]].isna().all()
    assert cells["epoch_s"].dtype == cells["compute_s"].dtype == float


def test_study_without_numbers_has_the_columns_of_numbers(laptop):
    StudyBuilder(Path("outputs") / "mine").with_cell(a_cell())
    study = hpml_jobs.open_study("mine")
    cells = study.cells()
    names = [
        "epoch_s",
        "train_s",
        "compute_s",
        "comm_exposed_s",
        "samples_per_s",
        "speedup",
    ]
    assert cells[[*names, "efficiency", "checks"]].isna().all(axis=None)
    with pytest.raises(hpml_jobs.HpmlError, match="no cell of study mine has a number"):
        study.choose()


def test_cells_may_be_changed_by_the_caller(builder):
    study = hpml_jobs.open_study("mine")
    for frame in (study.cells(), study.table("scaling")):
        frame["epoch_s"] = 0
    assert study.cells()["epoch_s"].max() == 8
    assert study.table("scaling")["epoch_s"].max() == 8


def test_table_of_two_groups_has_rows_of_both(builder):
    other = a_cell(gpus=1, batch=128, workload=RESNET)
    builder.with_record(a_record(other, "109_0.r0", 30.0))
    study = hpml_jobs.open_study("mine")
    assert set(study.table("scaling")["group"]) == {1, 2}
    assert set(study.choose(min_efficiency=0.4)["group"]) == {1, 2}


def test_table_is_selected_by_label(builder):
    study = hpml_jobs.open_study("mine")
    rows = {"table1": 3, "table1-ddp": 3, "table2": 2, "table2r-ddp": 2}
    assert {label: len(study.table(label)) for label in rows} == rows


def test_every_listed_table_has_a_title_and_rows(builder):
    study = hpml_jobs.open_study("mine")
    listed = study.tables()
    assert all(listed["title"])
    assert [len(study.table(label)) for label in listed["label"]] == list(
        listed["rows"]
    )


def test_unknown_table_is_refused_with_the_labels(builder):
    study = hpml_jobs.open_study("mine")
    for label in ("tabel1", "table1-fsdp", "table1-", ""):
        with pytest.raises(
            hpml_jobs.HpmlError, match=r"no table .*: q1, table1, .*scaling"
        ):
            study.table(label)


def test_iterations_have_a_row_per_rank_and_iteration(laptop):
    builder = StudyBuilder(Path("outputs") / "mine")
    write_curves(builder, builder.with_record(lab_record(lab_cell(2, 512), 20.0)).slug)
    steps = hpml_jobs.open_study("mine").iterations("ddp-2gpu-*")
    assert len(steps) == 2 * 147
    assert list(steps.groupby("rank")["step_s"].mean().round(6)) == [0.01, 0.02]
    first, last = steps.iloc[0], steps.iloc[-1]
    assert (first["epoch"], first["role"], first["iteration"], first["loss"]) == (
        1,
        "warmup",
        1,
        2,
    )
    assert list(last[["rank", "epoch", "role", "iteration"]]) == [
        1,
        3,
        "instrumented",
        147,
    ]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("ddp-8gpu-*", r"no cell of study mine matches ddp-8gpu-\*; its cells: "),
        ("ddp-4gpu-b128-*", r"ddp-4gpu-b128-digits-\w+: iterations.npz is missing"),
        ("ddp-4gpu-b512-*", "has no iterations: out of memory"),
    ],
)
def test_iterations_that_do_not_exist_are_named(pattern, message, builder):
    with pytest.raises(hpml_jobs.HpmlError, match=message):
        hpml_jobs.open_study("mine").iterations(pattern)


def test_iterations_of_a_pattern_leave_out_cells_without_numbers(laptop):
    builder = StudyBuilder(Path("outputs") / "mine").with_cell(lab_cell(2, 256))
    slug = builder.with_record(lab_record(lab_cell(2, 512), 20.0)).slug
    write_curves(builder, slug)
    assert set(hpml_jobs.open_study("mine").iterations("*")["slug"]) == {slug}


def test_states_are_those_of_status_after_refresh(builder):
    study = hpml_jobs.open_study("mine")
    missing = builder.slug
    assert dict(study.states()[["slug", "outcome"]].to_numpy())[missing] == "missing"
    builder.with_record(a_record(builder.cells[-1], "110_0.r0", 3.0))
    assert dict(study.states()[["slug", "outcome"]].to_numpy())[missing] == "missing"
    assert (
        dict(study.refresh().states()[["slug", "outcome"]].to_numpy())[missing] == "ok"
    )
    assert study.cells()["epoch_s"].min() == 3


def test_choose_names_the_cell_to_ask_for(builder):
    chosen = hpml_jobs.open_study("mine").choose()
    (ask,) = chosen[chosen["why"].str.startswith("use this")].to_dict("records")
    assert (ask["gpus"], ask["runs"], ask["epoch_s"]) == (2, 2, 4.5)


def test_choose_refuses_a_limit_without_epochs(builder):
    with pytest.raises(hpml_jobs.HpmlError, match="add epochs=N"):
        hpml_jobs.open_study("mine").choose(deadline_min=10)
    with pytest.raises(hpml_jobs.HpmlError, match="min_efficiency=-1: use more than 0"):
        hpml_jobs.open_study("mine").choose(min_efficiency=-1)


@pytest.mark.parametrize(
    ("study", "outputs"),
    [
        (None, None),
        ("outputs/mine", None),
        (Path("outputs") / "mine", None),
        ("mine", "outputs"),
        (None, Path("outputs")),
    ],
)
def test_study_is_opened_by_name_or_folder(study, outputs, builder):
    opened = hpml_jobs.open_study(study, outputs)
    assert opened.name == "mine"
    assert repr(opened).endswith("outputs: 6 cells (4 ok, 1 oom, 1 missing)")


@pytest.mark.parametrize(
    ("study", "message"),
    [
        ("yours", r"no study yours in .*/outputs \(studies: mine\)"),
        ("outputs/yours", "no study in .*/outputs/yours: it has no folder cells/"),
        (Path("yours"), "no study in .*/yours: it has no folder cells/"),
    ],
)
def test_unknown_study_is_refused_with_the_reason(study, message, builder):
    with pytest.raises(hpml_jobs.HpmlError, match=message):
        hpml_jobs.open_study(study)


def test_unreadable_manifest_is_a_warning(builder):
    builder.study.manifest.mkdir()
    with pytest.warns(UserWarning, match="jobs that only it names are missing"):
        assert len(hpml_jobs.open_study("mine").states()) == 6


LOADED = """\
import sys, json
before = set(sys.modules)
import hpml_jobs
light = sorted(set(sys.modules) - before - {"hpml_jobs"})
study = hpml_jobs.open_study("mine", sys.argv[1])
repr(study), study.folder
opened = {name.split(".")[0] for name in sys.modules}
study.cells()
print(json.dumps([light, sorted(opened), "pandas" in sys.modules]))
"""


def test_import_is_light_and_pandas_comes_with_a_table(builder):
    done = subprocess.run(
        [sys.executable, "-c", LOADED, "outputs"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    light, opened, has_pandas = json.loads(done.stdout)
    assert not [name for name in light if name.startswith("hpml_jobs")]
    heavy = {
        "pandas",
        "numpy",
        "matplotlib",
        "jinja2",
        "torch",
        "typer",
        "rich",
        "submitit",
    }
    assert not heavy & set(opened)
    assert has_pandas


def test_baseline_is_that_of_collect(laptop):
    builder = StudyBuilder(Path("outputs") / "large")
    for gpus, epoch_s in ((2, 8.0), (4, 5.0)):
        builder.with_record(
            a_record(a_cell(gpus=gpus, batch=128), f"10{gpus}_0.r0", epoch_s)
        )
    default = hpml_jobs.open_study("large").table("scaling")
    assert default["speedup"].isna().all()
    against_two = hpml_jobs.open_study("large", baseline="smallest").table("scaling")
    assert list(against_two["speedup"]) == [1.0, 1.6]
    with pytest.raises(
        hpml_jobs.HpmlError, match="baseline=tiny: choose one of single, smallest"
    ):
        hpml_jobs.open_study("large", baseline="tiny")
