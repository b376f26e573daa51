"""Picture of the loss by epoch: panels, lines, and what is not drawn."""

import pytest

from hpml_jobs.core.recipe import Recipe
from hpml_jobs.report.report import PLOTS
from tests.unit.builders import lab_cell, lab_record
from tests.unit.training_runs import write_curves


@pytest.fixture(scope="module", autouse=True)
def fonts():
    """Let matplotlib find its fonts once, before any test is timed."""
    import matplotlib.font_manager  # noqa: F401, PLC0415


def with_curves(builder, gpus, batch, **changes):
    return write_curves(
        builder,
        builder.with_record(lab_record(lab_cell(gpus, batch, **changes), 20.0)).slug,
    )


def legend_labels(picture):
    return [text.get_text() for text in picture.figure.legends[0].get_texts()]


def thick_lines(axis):
    return [line for line in axis.lines if line.get_linewidth() > 1]


def test_loss_plot_has_panel_per_group_and_line_per_row(builder):
    for gpus in (1, 2):
        for batch in (128, 512):
            with_curves(builder, gpus, batch)
    with_curves(builder, 2, 512, recipe=Recipe(name="scaled", scaled=True))
    picture = PLOTS["loss"](builder.collect())
    (axis,) = picture.figure.axes
    assert legend_labels(picture) == [
        "1 GPU, batch 128",
        "1 GPU, batch 512",
        "2 GPUs, batch 128",
        "2 GPUs, batch 512",
        "2 GPUs, batch 512 (lr scaled)",
    ]
    lines = thick_lines(axis)
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 5


def test_loss_plot_line_is_mean_over_ranks_for_all_epochs(builder):
    with_curves(builder, 2, 512)
    (axis,) = PLOTS["loss"](builder.collect()).figure.axes
    thin, _ = axis.lines
    assert len(thin.get_xdata()) == 147
    assert thin.get_ydata()[0] == pytest.approx(2.5)
