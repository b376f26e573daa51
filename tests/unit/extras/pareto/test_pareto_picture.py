"""Picture of time against cost: its front, names, marks and panels."""

import msgspec
import pytest

from hpml_jobs.core.check_result import CheckResult, Level
from hpml_jobs.core.recipe import Recipe
from hpml_jobs.report.frame import style
from hpml_jobs.report.pictures import PLOTS
from tests.unit.builders import V100, lab_cell, lab_record


@pytest.fixture(scope="module", autouse=True)
def fonts():
    """Let matplotlib find its fonts once, before any test is timed."""
    import matplotlib.font_manager  # noqa: F401, PLC0415


def texts(axis):
    return [text.get_text() for text in axis.texts]


def test_pareto_names_cell_to_ask_for_and_front(builder):
    for repeat, factor in enumerate((1.0, 1.02, 0.98)):
        for gpus, epoch_s in ((1, 20.0), (2, 12.0), (4, 8.0)):
            builder.with_record(
                lab_record(lab_cell(gpus, 128, repeat=repeat), epoch_s * factor)
            )
    picture = PLOTS["pareto"](builder.collect())
    (axis,) = picture.figure.axes
    front = axis.lines[0]
    assert list(front.get_xdata()) == pytest.approx([8, 12, 20])
    assert list(front.get_ydata()) == pytest.approx([32, 24, 20])
    words = texts(axis)
    assert "use this:\nddp 2-GPU b128" in words
    assert "fastest:\nddp 4-GPU b128" in words
    assert {"1 GPU", "2 GPUs", "4 GPUs"} < set(words)
    assert "use ddp 2-GPU b128; on the Pareto front: ddp 4-GPU b128 8.0" in picture.alt


def test_pareto_names_two_cells_where_a_larger_one_is_not_decided(builder):
    for repeat, factor in enumerate((0.95, 1.0, 1.0, 1.05)):
        for gpus, epoch_s in ((1, 20.0), (2, 14.5)):
            builder.with_record(
                lab_record(lab_cell(gpus, 128, repeat=repeat), epoch_s * factor)
            )
    picture = PLOTS["pareto"](builder.collect())
    cells = "not decided: single 1-GPU b128 or ddp 2-GPU b128;"
    assert cells in picture.alt


def test_pareto_legend_names_what_is_drawn(builder):
    """One strategy has the colours of its batches; a recipe changes no point."""
    builder.with_record(lab_record(lab_cell(1, 128), 20.0))
    for recipe in (Recipe(), Recipe(name="scaled", scaled=True)):
        builder.with_record(lab_record(lab_cell(2, 512, recipe=recipe), 12.0))
    legend = PLOTS["pareto"](builder.collect()).figure.legends[0]
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["single", "batch 128", "batch 512"]


def test_pareto_draws_a_doubtful_cell_hollow(builder, given_checks):
    builder.with_published_study()
    doubt = CheckResult(check="made-up", level=Level.WARN, reason="of this test")
    given_checks[lab_cell(4, 512).slug] = (doubt,)
    (axis,) = PLOTS["pareto"](builder.collect()).figure.axes
    (hollow,) = (
        line for line in axis.lines if line.get_markerfacecolor() == style.PAPER
    )
    assert list(hollow.get_ydata()) == pytest.approx([4 * 15.127])


def test_pareto_without_sound_cell_has_no_front(builder, given_checks):
    failure = CheckResult(check="made-up", level=Level.FAIL, reason="of this test")
    for gpus in (1, 2):
        builder.with_record(lab_record(lab_cell(gpus, 128), 20.0 / gpus))
        given_checks[builder.slug] = (failure,)
    picture = PLOTS["pareto"](builder.collect())
    assert len(picture.figure.axes[0].lines[0].get_xdata()) == 0
    assert "no cell of 2 can be recommended; on the Pareto front: none" in picture.alt


def test_pareto_has_a_panel_for_each_group(builder):
    other = msgspec.structs.replace(V100, gpu_model="NVIDIA A100-SXM4-40GB")
    for facts in (V100, other):
        for gpus in (1, 2):
            cell = lab_cell(gpus, 128, seed=int(facts is other))
            builder.with_record(lab_record(cell, 20.0 / gpus, facts=facts))
    picture = PLOTS["pareto"](builder.collect())
    titles = [axis.get_title("left") for axis in picture.figure.axes]
    assert titles == ["group 1", "group 2"]
