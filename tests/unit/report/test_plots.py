"""Pictures: the same bytes again, in full resolution."""

import matplotlib as mpl
import pytest

from hpml_jobs.report.frame.picture import png_files
from hpml_jobs.report.report import PLOTS, pictures
from tests.unit.builders import lab_cell, lab_record

PICTURES = ["phases"]


@pytest.fixture(scope="module", autouse=True)
def fonts():
    """Let matplotlib find its fonts once, before any test is timed."""
    import matplotlib.font_manager  # noqa: F401, PLC0415


@pytest.fixture
def few(monkeypatch):
    """Only the pictures of these tests: every other one costs a second."""
    kept = {name: draw for name, draw in PLOTS.items() if name in PICTURES}
    monkeypatch.setattr("hpml_jobs.report.report.PLOTS", kept)


def test_plots_are_identical_despite_user_matplotlib_style(builder, few):
    builder.with_record(lab_record(lab_cell(2, 512), 20.0))
    first = png_files(pictures(builder.collect()).values())
    assert sorted(first) == sorted(f"{name}.png" for name in PICTURES)
    assert all(first.values())
    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9, "svg.hashsalt": None}):
        assert png_files(pictures(builder.collect()).values()) == first
