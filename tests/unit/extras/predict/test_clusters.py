"""Bands of predictions across nodes contain the times of simulated clusters as often as is meant.

The functions are those of tests/benchmarks/clusters.py, which prints the table of
docs/predict_validation.json.
"""

import importlib.util
from pathlib import Path

import pytest

FILE = Path(__file__).parents[3] / "benchmarks" / "clusters.py"
_spec = importlib.util.spec_from_file_location("clusters", FILE)
clusters = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(clusters)


@pytest.mark.parametrize(("asked", "width"), [(32, 0.5), (64, 1.2), (128, 3.2)])
def test_bands_from_one_and_two_nodes_hold_up_to_sixteen(asked, width):
    """They are wide: the step from one node to two may be a growth that goes on."""
    simulated = [
        clusters.a_cluster(seed, flat=flat)
        for seed in range(40)
        for flat in (False, True)
    ]
    of = clusters.coverage(simulated, (1, 8, 16), asked)
    assert of.inside >= 0.85
    assert of.width < width


def test_spine_beyond_the_measured_nodes_is_remarked():
    """No band knows it."""
    simulated = [clusters.a_cluster(seed, flat=False, spine=True) for seed in range(20)]
    of = clusters.coverage(simulated, (1, 8, 16), 128)
    assert of.inside < 0.85
    assert of.remarked == 1
