"""Runs of an export: one per record, with settings, key numbers and a thinned history."""

import msgspec
import numpy as np
import pytest

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.record import Facts
from hpml_jobs.extras.exchange import runs
from hpml_jobs.extras.exchange.runs import exported
from hpml_jobs.report.key_numbers import key_numbers
from tests.unit.builders import a_cell, a_record, lab_cell, lab_record
from tests.unit.study_builder import StudyBuilder
from tests.unit.training_runs import write_curves


@pytest.fixture
def builder(tmp_path):
    return StudyBuilder(tmp_path / "mine")


def runs_of(builder):
    return exported(builder.study, builder.collect())


def test_run_has_settings_conditions_and_key_numbers(builder):
    builder.with_record(a_record(a_cell(gpus=1, batch=128), "101_0.r0", 8.0))
    record = a_record(a_cell(gpus=2, batch=128), "102_0.r0", 5.0)
    _, run = runs_of(builder.with_record(record)).runs
    assert (run.name, run.workload, run.tags) == (
        record.slug,
        "digits",
        ("mine", "digits", "ok"),
    )
    assert (run.config["gpus"], run.config["strategy"], run.config["hosts"]) == (
        2,
        "ddp",
        "gr001",
    )
    assert run.config["condition torch"] == "2.14.1"
    assert (run.summary["epoch_s"], run.summary["speedup"]) == (5.0, 1.6)
    assert run.summary["phase_forward_s"] == pytest.approx(0.3 * 1.005 * 5.0)
    single = {n for n, v in key_numbers(record).items() if isinstance(v, int | float)}
    assert single <= run.summary.keys()
    assert run.started_s == 1_790_848_800  # 2026-10-01T10:00:00 UTC


def test_same_record_has_the_same_id_and_another_attempt_another(builder):
    builder.with_record(a_record(a_cell(gpus=1), "101_0.r0", 8.0))
    ids = [runs_of(builder).runs[0].id for _ in range(2)]
    builder.with_record(a_record(a_cell(gpus=1), "102_0.r0", 8.0))
    again = runs_of(builder).runs[0].id
    assert ids[0] == ids[1] != again


def test_history_is_of_all_epochs(builder):
    write_curves(builder, builder.with_record(lab_record(lab_cell(2, 512), 20.0)).slug)
    (run,) = runs_of(builder).runs
    assert [row.iteration for row in run.history] == list(range(1, 148))
    assert run.history[0] == (1, 1, 0.02, 2.5, 0.02, 0.1)
    assert run.history[-1].epoch == 3
    assert run.ended_s - run.started_s == pytest.approx(147 * 0.02)


def test_long_history_is_thinned(builder, monkeypatch):
    monkeypatch.setattr(runs, "HISTORY_ROWS", 50)
    write_curves(builder, builder.with_record(lab_record(lab_cell(2, 512), 20.0)).slug)
    (run,) = runs_of(builder).runs
    assert [row.iteration for row in run.history] == list(range(1, 148, 3))
    assert run.history[1].at_s == pytest.approx(4 * 0.02)


def test_damaged_iterations_are_noted(builder):
    slug = write_curves(
        builder,
        builder.with_record(lab_record(lab_cell(2, 512), 20.0)).slug,
        curve_lr=np.zeros(3),
    )
    content = runs_of(builder)
    assert content.runs[0].history == ()
    (note,) = content.notes
    assert note.startswith(f"no history of {slug}: iterations.npz: curve_lr is 3")


def test_cells_without_numbers_are_noted_or_have_none(builder):
    builder.with_out_of_memory(a_cell(gpus=4, batch=512))
    builder.with_cell(a_cell(gpus=2, batch=512), Outcome.MISSING)
    content = runs_of(builder)
    (run,) = content.runs
    assert (run.outcome, run.summary) == ("oom", {})
    assert run.config["reason"].startswith("CUDA out of memory")
    assert content.notes == [
        f"not exported, without a record: {builder.slug} (missing)"
    ]


def test_cell_of_several_groups_is_one_run(builder):
    for gpus, torch in ((1, "2.14.1"), (2, "2.7.1")):
        builder.with_record(
            a_record(a_cell(gpus=gpus), "101_0.r0", facts=Facts(torch=torch))
        )
    builder.with_out_of_memory(a_cell(gpus=4)).with_cell(
        a_cell(gpus=8), Outcome.MISSING
    )
    content = runs_of(builder)
    assert len(builder.collect().groups) == 2
    assert [run.outcome for run in content.runs] == ["ok", "oom", "ok"]
    assert content.notes == [
        f"not exported, without a record: {builder.slug} (missing)"
    ]


def test_values_that_are_not_finite_are_left_out(builder):
    record = a_record(a_cell(gpus=1), "101_0.r0", 8.0)
    timed = record.ranks[0].timed
    epochs = tuple(
        msgspec.structs.replace(epoch, loss=float("nan")) if epoch is timed else epoch
        for epoch in record.ranks[0].epochs
    )
    rank = msgspec.structs.replace(record.ranks[0], epochs=epochs)
    summary = runs._summary(msgspec.structs.replace(record, ranks=(rank,)), None)
    assert "loss" not in summary
    assert "accuracy" in summary
