"""Predictions in a report: the table, the picture, and what is not predicted, by a given forecast.

Whether a forecast is right is tested in tests/unit/extras/predict.
"""

from pathlib import Path

import msgspec
import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.place import Place, Setup
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.extras.predict.forecast import Forecast, Method, Prediction, Refusal
from hpml_jobs.extras.predict.model import LeftOutCell, Skill
from hpml_jobs.extras.predict.place import MeasuredPlace, Target, changed
from hpml_jobs.extras.predict.table import errors, predictions
from hpml_jobs.report.pictures import PLOTS
from hpml_jobs.report.report import Report, make_report
from hpml_jobs.study.snapshot import read_snapshots
from hpml_jobs.study.study import Study
from tests.unit.builders import lab_cell, lab_record
from tests.unit.study_builder import StudyBuilder

STEPS_S = {1: 0.10, 2: 0.11, 4: 0.12}


def observed(gpus: int, step_s: float, cells: tuple[str, ...] = ()) -> MeasuredPlace:
    strategy = Strategy.SINGLE if gpus == 1 else Strategy.DDP
    place = Place(Setup(gpus, 1, strategy), 128)
    return MeasuredPlace(place=place, step_s=step_s, cells=cells)


def target(gpus: int, nodes: int = 1) -> Target:
    return Target(place=Place(Setup(gpus, nodes, Strategy.DDP), 128))


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Report:
    """Three measured sizes; 8 GPUs predicted, 16 refused."""
    builder = StudyBuilder(tmp_path_factory.mktemp("predicted"))
    for gpus, step_s in STEPS_S.items():
        builder.with_record(lab_record(lab_cell(gpus, 128), 391 * step_s / gpus))
    slugs = {cell.gpus: cell.slug for cell in builder.cells}
    places = tuple(
        observed(gpus, step_s, (slugs[gpus],)) for gpus, step_s in STEPS_S.items()
    )
    left_out = LeftOutCell(observation=places[2], model_s=0.117, null_s=0.11)
    eight = Prediction(
        target=target(8),
        method=Method.MODEL,
        step_s=0.126,
        model_s=0.126,
        null_s=0.12,
        low_s=0.114,
        high_s=0.139,
        skill=Skill(how="the largest", points=(left_out,)),
        remarks=("the band rests on one cell",),
    )
    refusal = Refusal(
        target=target(16, 2),
        reason="no cell on two nodes",
        command="hpml-jobs gpus=16 nodes=2 batch=128",
    )
    forecast = Forecast(
        conditions={}, observations=places, predictions=(eight,), refusals=(refusal,)
    )
    collected = builder.collect()
    (group,) = collected.groups
    given = msgspec.structs.replace(group, results={"predict": forecast})
    return msgspec.structs.replace(collected, groups=(given,))


def test_prediction_picture_has_points_curve_band_and_null(report):
    picture = PLOTS["prediction"](report)
    (axis,) = picture.figure.axes
    lines = [
        (
            [round(float(x)) for x in line.get_xdata()],
            [round(float(y)) for y in line.get_ydata()],
        )
        for line in axis.lines
    ]
    assert ([1, 2, 4], [1280, 1164, 1067]) in lines  # 128 images / step
    assert ([4, 8], [1067, 1016]) in lines
    assert ([4, 8], [1067, 1067]) in lines
    (band,) = axis.collections
    corners = band.get_paths()[0].vertices
    assert {round(float(y)) for x, y in corners if x == 8} == {921, 1123}
    assert axis.get_xscale() == "log"
    assert axis.get_ylim()[0] == 0
    names = [text.get_text() for text in picture.figure.legends[0].get_texts()]
    assert names == ["ddp", "predicted", "90 % band", "no change per GPU"]


def test_prediction_picture_says_both_errors(report):
    picture = PLOTS["prediction"](report)
    assert "not measured" in picture.caption
    assert "batch 128 per GPU, ddp 2.5 % and 8.3 %" in picture.caption
    assert picture.alt == (
        "Predicted images/s per GPU; batch 128 per GPU, ddp: 1,016 [921, 1,123] on 8 GPUs."
    )


def test_predictions_table_has_band_skill_and_reason(report):
    (group,) = report.groups
    table = predictions(group.source, group.results["predict"])
    (line,) = table.lines
    assert line.label == "ddp 8-GPU b128"
    assert line.texts[:4] == ("0.126", "0.114", "0.139", "0.120")
    assert table.sheet.columns[:5] == (
        "strategy",
        "gpus",
        "nodes",
        "treatment",
        "batch",
    )
    assert table.notes == (
        "the band rests on one cell",
        "not predicted: 16 GPUs on 2 nodes, batch 128 (ddp): no cell on two nodes:\n"
        "hpml-jobs gpus=16 nodes=2 batch=128",
    )


def test_errors_of_each_strategy_are_said(report):
    (group,) = report.groups
    (ddp,) = group.results["predict"].predictions
    skill = msgspec.structs.replace(
        ddp.skill, points=(msgspec.structs.replace(ddp.skill.points[0], model_s=0.12),)
    )
    of_zero1 = changed(ddp.target, strategy=Strategy.ZERO1)
    zero1 = msgspec.structs.replace(ddp, target=of_zero1, skill=skill)
    both = msgspec.structs.replace(group.results["predict"], predictions=(ddp, zero1))
    said = (
        "error on 1 left-out cell (the largest), mean / 90th percentile / worst: model"
    )
    first, second = errors(both, group.source.device)
    assert first.startswith(f"ddp: {said} 2.5 / 2.5 / 2.5 %")
    assert second.startswith(f"zero1: {said} 0 / 0 / 0 %")
    (alone,) = errors(group.results["predict"], group.source.device)
    assert alone.startswith(said)


def test_group_without_prediction_has_no_picture(report):
    (group,) = report.groups
    refused = msgspec.structs.replace(group.results["predict"], predictions=())
    without = msgspec.structs.replace(group, results={"predict": refused})
    assert (
        PLOTS["prediction"](msgspec.structs.replace(report, groups=(without,))) is None
    )


@pytest.mark.whole
def test_imported_rates_are_predicted_for_the_next_doublings(laptop, capsys):
    rates = ["1,1,8,64,29.7", "8,1,8,64,229", "16,2,8,64,459"]
    Path("rates.csv").write_text(
        "\n".join(["gpus,nodes,gpus_per_node,batch,rate", *rates])
    )
    assert run(["import", "rates.csv", "study=k80", "unit=images/s"]) == 0
    study = Study(Path("outputs/k80"))
    collected = make_report(study.name, read_snapshots(study.cells()), states=())
    (axis,) = PLOTS["prediction"](collected).figure.axes
    curves = [
        ([round(float(x)) for x in line.get_xdata()], list(line.get_ydata()))
        for line in axis.lines
        if line.get_marker() == "x"
    ]
    ((sizes, per_gpu),) = curves
    assert sizes == [16, 32, 64]
    assert per_gpu == pytest.approx([459 / 16, 28.4, 28.2], abs=0.1)
