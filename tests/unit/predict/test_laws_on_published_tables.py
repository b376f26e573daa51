"""Amdahl, Gustafson and USL as forecasts of published tables: why the report calls them none."""

import csv
from pathlib import Path

import pytest

from hpml_jobs.predict.scaling_laws import (
    amdahl,
    fit_amdahl,
    fit_gustafson,
    fit_usl,
    gustafson,
    usl,
)
from hpml_jobs.predict.values import errors_of
from hpml_jobs.report.tables import laws

ROOT = Path(__file__).parents[3]
LAWS = {
    "Amdahl": (fit_amdahl, amdahl),
    "Gustafson": (fit_gustafson, gustafson),
    "USL": (fit_usl, usl),
}
IN_NODE = "1, 2, 4 -> 8 GPUs in a node"
BEYOND = "sizes in a node -> more nodes"
NODES = "1, 2 nodes -> more nodes"


def all_series():
    """The rates of each series by GPUs, with the GPUs of a node."""
    series = {}
    for name in ("transformer_xl.csv", "tf_benchmarks.csv"):
        with (ROOT / "tests/data/published" / name).open(newline="") as file:
            for row in csv.DictReader(file):
                key = (row["model"], row["gpu_model"], row["batch"], int(row["gpus_per_node"]))
                series.setdefault(key, {})[int(row["gpus"])] = float(row["rate"])
    return [(key[-1], rates) for key, rates in series.items()]


def splits(per_node, rates):
    """Yield the group, the sizes that are given, and those to forecast."""
    inside = [n for n in rates if n <= per_node]
    beyond = [n for n in rates if n > per_node]
    if {1, 2, 4, 8} <= rates.keys():
        yield IN_NODE, (1, 2, 4), (8,)
    if beyond and len(inside) > 1:
        yield BEYOND, inside, beyond
    if {per_node, 2 * per_node} <= rates.keys() and max(rates) > 2 * per_node:
        yield NODES, (per_node, 2 * per_node), [n for n in beyond if n > 2 * per_node]


@pytest.fixture(scope="module")
def errors():
    """The |errors| of the time by group and law, those of no change per GPU among them."""
    by_group = {}
    for per_node, rates in all_series():
        for group, given, more in splits(per_node, rates):
            first, last = min(given), max(given)
            points = [(n / first, rates[n] / rates[first]) for n in given if n > first]
            fits = {name: (fit(points), law) for name, (fit, law) in LAWS.items()}
            for n in more:
                forecast = {
                    name: law(*fit.coefficients, n / first) * rates[first]
                    for name, (fit, law) in fits.items()
                    if fit
                }
                forecast["no change"] = rates[last] * n / last
                for name, rate in forecast.items():
                    by_group.setdefault((group, name), []).append(abs(rates[n] / rate - 1))
    return {key: errors_of(values) for key, values in by_group.items()}


def percent(value):
    return f"{100 * value:.1f}"


def test_caption_of_the_laws_has_their_errors(errors):
    caption = laws.NO_FORECAST
    in_node = {name: percent(errors[IN_NODE, name].mean) for name in (*LAWS, "no change")}
    for name in LAWS:
        assert f"{in_node[name]} % ({name})" in caption
    assert f"no change per GPU misses it by {in_node['no change']} %" in caption
    beyond = errors[BEYOND, "Amdahl"]
    assert f"Amdahl misses by {percent(beyond.mean)} %" in caption
    assert f"at worst by {percent(beyond.worst)} %" in caption


def test_validation_page_has_the_errors_of_the_laws(errors):
    page = (ROOT / "docs/choose_predict.md").read_text()
    for group in (IN_NODE, BEYOND, NODES):
        of_group = [errors.get((group, name)) for name in (*LAWS, "no change")]
        figures = [f"{percent(e.mean)} [{percent(e.worst)}]" if e else "–" for e in of_group]
        assert f"| {group} | {' | '.join(figures)} |" in page
