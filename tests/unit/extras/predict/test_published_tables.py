"""Predictions of published tables: better than no change per GPU, and honest about their error.

The figures are those of tests/benchmarks/predictions.py, which docs/predict.md and
docs/predictions.csv show.
"""

import importlib.util
from pathlib import Path

import pytest

from hpml_jobs.core.place import Place, Setup
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.extras.predict.model import errors_of
from hpml_jobs.extras.predict.place import MeasuredPlace

pytest.importorskip("hpml_jobs.extras.exchange")  # which reads the tables

ROOT = Path(__file__).parents[4]
FILE = ROOT / "tests" / "benchmarks" / "predictions.py"
_spec = importlib.util.spec_from_file_location("predictions", FILE)
predictions = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(predictions)


@pytest.fixture(scope="module")
def points():
    files = [predictions.PUBLISHED / name for name in predictions.TABLES]
    return [
        point for s in predictions.all_series(files) for point in predictions.points(s)
    ]


def errors(points, *groups):
    of_groups = [p for p in points if p.group in groups]
    model = errors_of([abs(p.error) for p in of_groups])
    return model, errors_of([abs(p.null_error) for p in of_groups])


def test_published_points_are_all_there(points):
    numbers = [sum(p.group == group for p in points) for group in predictions.GROUPS]
    assert numbers == [24, 4, 12, 14]


@pytest.mark.parametrize("group", predictions.GROUPS)
def test_published_group_is_predicted_better_than_by_null(group, points):
    model, null = errors(points, group)
    assert model.mean < null.mean
    assert model.p90 < null.p90
    assert model.worst < null.worst


def test_published_nodes_have_a_quarter_less_error_than_null(points):
    model, null = errors(points, predictions.IN_NODE, predictions.IN_LARGE_NODE)
    assert model.mean <= 0.75 * null.mean


def test_published_large_errors_are_marked(points):
    large = [p for p in points if abs(p.error) > predictions.LARGE_ERROR]
    assert [(p.series, p.observation.batch) for p in large] == [("VGG-16 on P100", 32)]
    assert all(p.prediction.remarks for p in large)


def test_published_times_are_in_the_bands_as_often_as_meant(points):
    assert 0.80 <= sum(p.is_in_band for p in points) / len(points) <= 0.97


def row_of_the_page(points):
    """Return the figures of all points, as a row of the page has them."""
    texts = predictions.group_table(points).splitlines()[-1].strip("| ").split(" | ")
    _, number, mean, p90, worst, null_mean, _, _, in_band, _ = texts
    share = in_band.partition("(")[2].rstrip(")")
    return f"| {' | '.join([number, mean, p90, worst, null_mean, share])} |"


def test_validation_page_has_the_figures_of_the_benchmark(points):
    assert row_of_the_page(points) in (ROOT / "docs/predict.md").read_text()


def test_csv_of_points_is_that_of_the_benchmark():
    assert (ROOT / "docs/predictions.csv").read_text() == predictions.csv_text()


def test_validation_page_has_the_figures_of_tables_that_were_not_used(capsys):
    """They have no bars: a bar would make them tables that were used."""
    files = sorted(predictions.PUBLISHED.glob("held_back*.csv"))
    points = [
        point for s in predictions.all_series(files) for point in predictions.points(s)
    ]
    assert row_of_the_page(points) in (ROOT / "docs/predict.md").read_text()
    assert capsys.readouterr().err == ""


def test_series_that_cannot_be_predicted_is_printed_and_left_out(capsys):
    observations = [
        MeasuredPlace(
            place=Place(Setup(8 * nodes, nodes, Strategy.DDP), batch), step_s=1.0
        )
        for nodes, batch in ((2, 32), (2, 64))
    ]
    series = predictions.Series("ResNet-50 on V100", tuple(observations))
    assert list(predictions.points(series)) == []
    assert (
        "ResNet-50 on V100, 16 GPUs: nothing smaller than 16" in capsys.readouterr().err
    )
