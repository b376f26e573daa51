"""The choice with predictions: beside the measured one, marked, and only where requested.

The forecast is given: whether one is right is tested in tests/unit/predict.
"""

import msgspec
import pytest

from hpml_jobs.core.strategies import Strategy
from hpml_jobs.predict.question import Question
from hpml_jobs.predict.values import (
    Forecast,
    LeftOut,
    Method,
    Observation,
    Prediction,
    Refusal,
    Skill,
    Target,
)
from hpml_jobs.report.choice import Asked, choices
from hpml_jobs.report.merge import forecasts
from hpml_jobs.report.merge.choice import Wish
from hpml_jobs.study.snapshot import read_snapshots
from tests.unit.builders import a_cell, a_record

pytestmark = pytest.mark.usefixtures("no_checks")

EPOCHS_S = {1: 8.0, 2: 4.2, 4: 2.2}
"""Epochs of 160, 80 and 40 iterations."""


def observed(cell, epoch_s):
    return Observation(
        gpus=cell.gpus,
        batch=cell.batch,
        strategy=cell.strategy,
        step_s=epoch_s / (160 / cell.gpus),
        cells=(cell.slug,),
    )


def predicted_step(gpus, step_s, band=(0.9, 1.3), observation=None):
    skill = Skill(
        how="each size",
        points=(LeftOut(observation=observation, model_s=0.0561, null_s=0.0525),),
    )
    return Prediction(
        target=Target(gpus=gpus, batch=128, strategy=Strategy.DDP),
        method=Method.MODEL,
        step_s=step_s,
        model_s=step_s,
        null_s=0.055,
        low_s=band[0] * step_s,
        high_s=band[1] * step_s,
        skill=skill,
    )


@pytest.fixture
def study(builder, monkeypatch):
    """Three measured sizes; 8 GPUs predicted at 0.0575 s per iteration, 16 not."""
    for gpus, epoch_s in EPOCHS_S.items():
        builder.with_record(a_record(a_cell(gpus=gpus, batch=128), f"1{gpus}_0.r0", epoch_s))
    observations = tuple(observed(cell, EPOCHS_S[cell.gpus]) for cell in builder.cells)
    refusal = Refusal(
        target=Target(gpus=16, nodes=2, batch=128, strategy=Strategy.DDP),
        reason="no cell on two nodes",
        command="hpml-jobs gpus=16 nodes=2",
    )
    forecast = Forecast(
        conditions={},
        observations=observations,
        predictions=(predicted_step(8, 0.0575, observation=observations[-1]),),
        refusals=(refusal,),
    )
    monkeypatch.setattr(forecasts, "forecast", lambda *_: forecast)
    return builder


def chosen(builder, *, predicted=True, **wish):
    snapshots = read_snapshots(builder.study.cells())
    commands = ("hpml-jobs -m gpus=1,2,4 batch=128 workload=digits",)
    asked = Asked(Question()) if predicted else None
    (made,) = choices(snapshots, Wish(**wish), None, commands, asked)
    return made


def test_predicted_cell_is_an_answer_of_its_own(study):
    made = chosen(study)
    assert made.table.answer == chosen(study, predicted=False).table.answer
    assert made.table.answer.startswith("Ask for 4 GPUs")
    assert made.predicted.table.answer == (
        "Predicted, not measured: 8 GPUs at batch 128 per GPU (ddp): 1.150 s [1.035, 1.495] per "
        "epoch, efficiency 0.870, 9.20 GPU-s per epoch; error on left-out cells 2.0 % (no change "
        "per GPU 4.5 %)."
    )
    assert [line.label for line in made.predicted.table.lines] == ["ddp 8-GPU b128"]


def test_predicted_choice_names_doubt_command_and_refusal(study):
    assert chosen(study).predicted.table.notes == (
        "at the upper end of its band it is below the least efficiency: 1.495 s, efficiency 0.669",
        "measure it before you ask for it: hpml-jobs gpus=8 batch=128 workload=digits",
        "not predicted: ddp 16-GPU (2 nodes) at batch 128: no cell on two nodes: hpml-jobs gpus=16 "
        "nodes=2",
    )


def test_predicted_cell_on_nodes_is_measured_on_them(study, monkeypatch):
    given = forecasts.forecast()
    (on_one_node,) = given.predictions
    target = msgspec.structs.replace(on_one_node.target, nodes=2, accumulate=2)
    moved = msgspec.structs.replace(on_one_node, target=target, step_s=0.115, low_s=None)
    changed = msgspec.structs.replace(given, predictions=(moved,))
    monkeypatch.setattr(forecasts, "forecast", lambda *_: changed)
    assert (
        "measure it before you ask for it: hpml-jobs gpus=8 batch=128 nodes=2 accumulate=2 "
        "workload=digits"
    ) in chosen(study).predicted.table.notes


def test_predicted_cell_must_be_better_by_the_rule(study):
    made = chosen(study, min_efficiency=0.9)
    assert made.predicted.choice.ask is None
    assert made.predicted.table.answer == (
        "Predicted, not measured: no predicted cell replaces the measured choice (the most GPUs "
        "with an efficiency of 0.900 or more)."
    )
    assert made.predicted.table.lines[0].texts[-1] == "efficiency below 0.900"


def test_predicted_cell_meets_a_deadline_that_no_measured_one_does(study):
    made = chosen(study, epochs=90, deadline_min=2)
    assert made.table.answer.startswith("No cell can be recommended")
    assert made.predicted.choice.ask.candidate.row.gpus == 8
    assert "; 90 epochs take 1.73 min and cost 0.230 GPU-hours; " in made.predicted.table.answer
    assert (
        chosen(study, epochs=90, deadline_min=4).predicted.choice.ask is None
    )  # 4 GPUs are cheaper


def test_predicted_values_are_apart_in_json(study):
    document = chosen(study).document
    assert [cell["gpus"] for cell in document["cells"]] == [4, 2, 1]
    assert document["ask"]["gpus"] == 4
    (cell,) = document["predicted"]["cells"]
    assert cell["gpus"] == 8
    assert not any(name.startswith(("runs", "cells", "joules", "doubtful")) for name in cell)
    assert cell["epoch_s"] == pytest.approx(1.15)
    assert (cell["model_error"], cell["null_error"]) == (pytest.approx(0.02), pytest.approx(1 / 22))
    assert document["predicted"]["not_predicted"][0]["reason"] == "no cell on two nodes"
    assert chosen(study, predicted=False).document["predicted"] is None


def test_study_without_predictions_says_so(study, monkeypatch):
    empty = msgspec.structs.replace(forecasts.forecast(), predictions=())
    monkeypatch.setattr(forecasts, "forecast", lambda *_: empty)
    assert (
        chosen(study).predicted.table.answer == "Predicted, not measured: no cell can be predicted."
    )
