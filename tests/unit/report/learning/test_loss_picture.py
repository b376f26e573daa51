"""Picture of the loss by iteration: panels, lines, and what is not drawn."""

import pytest

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.recipe import Recipe
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.report.learning import picture as loss_picture
from hpml_jobs.report.pictures import PLOTS
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


def test_loss_plot_has_panel_per_batch_and_line_per_row(builder):
    for gpus in (1, 2):
        for batch in (128, 512):
            with_curves(builder, gpus, batch)
    with_curves(builder, 2, 512, recipe=Recipe(name="scaled", scaled=True))
    picture = PLOTS["loss"](builder.collect())
    titles = [axis.get_title("left") for axis in picture.figure.axes]
    assert titles == ["batch 128 per GPU", "batch 512 per GPU"]
    assert legend_labels(picture) == ["single 1-GPU", "ddp 2-GPU", "ddp 2-GPU (scaled)"]
    assert [len(thick_lines(axis)) for axis in picture.figure.axes] == [2, 3]


def test_loss_plot_line_is_mean_over_ranks_for_all_epochs(builder):
    with_curves(builder, 2, 512)
    (axis,) = PLOTS["loss"](builder.collect()).figure.axes
    thin, _ = axis.lines
    assert len(thin.get_xdata()) == 147
    assert thin.get_ydata()[0] == pytest.approx(2.5)


def test_loss_plot_of_a_long_run_is_thinned(builder, monkeypatch):
    with_curves(builder, 2, 512)
    monkeypatch.setattr(loss_picture, "POINTS", 50)
    picture = PLOTS["loss"](builder.collect())
    assert len(picture.figure.axes[0].lines[0].get_xdata()) == 49  # of 147


def test_loss_plot_draws_eight_rows_and_names_the_rest(builder):
    for gpus in (1, 2, 4):
        with_curves(builder, gpus, 512)
        for strategy in (
            Strategy.ALLREDUCE,
            Strategy.ALLREDUCE_FLAT,
            Strategy.GATHER_SCATTER,
        ):
            with_curves(builder, max(2, gpus), 512, strategy=strategy, repeat=gpus)
    picture = PLOTS["loss"](builder.collect())
    assert len(legend_labels(picture)) == 8
    assert {"single 1-GPU", "gather_scatter 4-GPU"} <= set(legend_labels(picture))
    assert "Not drawn, see curves.csv: " in picture.caption


def test_loss_plot_draws_six_panels_and_names_the_rest(builder):
    for batch in (32, 64, 128, 256, 512, 1024, 2048):
        with_curves(builder, 2, batch, protocol=Protocol.LAB)
    picture = PLOTS["loss"](builder.collect())
    assert len(picture.figure.axes) == 6
    assert picture.caption.endswith("Not drawn, see curves.csv: batch 2048 per GPU.")


def test_loss_plot_damaged_file_draws_next_run(builder):
    bad = with_curves(builder, 2, 512)
    with_curves(builder, 2, 512, seed=1)
    builder.study.cell(bad).iterations.write_bytes(b"no arrays")
    assert len(PLOTS["loss"](builder.collect()).figure.axes) == 1
    builder.study.cell(bad).iterations.unlink()
    assert len(PLOTS["loss"](builder.collect()).figure.axes) == 1
