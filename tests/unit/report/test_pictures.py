"""Pictures of a study by their data: lines, bars, labels, alt texts and captions."""

import pytest

from hpml_jobs.core.check_result import CheckResult, Level
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.report.frame import picture
from hpml_jobs.report.report import PLOTS
from tests.unit.builders import PUBLISHED_S, lab_cell, lab_record
from tests.unit.study_builder import StudyBuilder

pytestmark = pytest.mark.usefixtures("all_pictures")


@pytest.fixture(scope="module", autouse=True)
def fonts():
    """Let matplotlib find its fonts once, before any test is timed."""
    import matplotlib.font_manager  # noqa: F401, PLC0415


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The nine cells of the published study, single runs."""
    return StudyBuilder(tmp_path_factory.mktemp("lab")).with_published_study().collect()


@pytest.fixture(scope="module")
def repeated(tmp_path_factory):
    """Three runs each of one GPU, of two and four with ddp, and of two with gather_scatter."""
    study = StudyBuilder(tmp_path_factory.mktemp("repeated"))
    for repeat, factor in enumerate((1.0, 1.02, 0.98)):
        for gpus, epoch_s in ((1, 20.0), (2, 12.0), (4, 8.0)):
            cell = lab_cell(gpus, 128, repeat=repeat)
            study.with_record(lab_record(cell, epoch_s * factor))
        cell = lab_cell(2, 128, repeat=repeat, strategy=Strategy.GATHER_SCATTER)
        study.with_record(lab_record(cell, 16.0 * factor))
    return study.collect()


def legend_labels(picture):
    return [text.get_text() for text in picture.figure.legends[0].get_texts()]


def titles(picture):
    return [axis.get_title("left") for axis in picture.figure.axes]


def texts(axis):
    return [text.get_text() for text in axis.texts]


def lines_of(axis, colour):
    """Return the (x, y) of the lines in a colour, x rounded to GPUs."""
    return [
        (
            [round(float(x)) for x in line.get_xdata()],
            [float(y) for y in line.get_ydata()],
        )
        for line in axis.lines
        if line.get_color() == colour
    ]


def cell_labels(axis):
    return [label.get_text() for label in axis.get_yticklabels()]


# ---- all of them ----


# ---- speedup ----


BATCHES = (picture.BLUE, picture.RED, picture.GREEN)
"""The colours of batch 32, 128 and 512 in a study of one strategy."""


def test_speedup_has_weak_beside_strong_and_ideal_line(lab):
    picture = PLOTS["speedup"](lab)
    assert titles(picture) == [
        "weak scaling, by batch per GPU",
        "strong scaling, by global batch",
    ]
    assert legend_labels(picture) == [
        "ddp, batch 32",
        "ddp, batch 128",
        "ddp, batch 512",
        "ideal",
    ]
    weak, strong = picture.figure.axes
    by_batch = {
        batch: PUBLISHED_S[1, batch] / PUBLISHED_S[4, batch] for batch in (32, 128, 512)
    }
    drawn = [line for colour in BATCHES for line in lines_of(weak, colour)]
    assert [x for x, _ in drawn] == [[1, 2, 4]] * 3
    assert [y[-1] for _, y in drawn] == pytest.approx([*by_batch.values()])
    # the same global batch: 128 on 4 GPUs against 512 on 1, 32 on 4 against 128 on 1
    ends = sorted(y[-1] for colour in BATCHES for _, y in lines_of(strong, colour))
    assert ends == pytest.approx([27.224 / 30.822, 25.945 / 19.878])
    ideal = weak.lines[-1]
    assert list(ideal.get_xdata()) == pytest.approx(list(ideal.get_ydata()))
    # once for a row
    assert (weak.get_ylabel(), strong.get_ylabel()) == (
        "speedup (log)",
        "",
    )
    assert weak.get_xlabel() == "GPUs (log)"
    assert "ddp, batch 512: 1.72 on 4 GPUs" in picture.alt


# ---- bars ----


def test_phases_are_stacked_and_add_up_to_the_epoch(repeated):
    picture = PLOTS["phases"](repeated)
    (axis,) = picture.figure.axes
    labels = [label.removeprefix("! ") for label in cell_labels(axis)]
    assert labels == [
        "1 GPU, batch 128",
        "2 GPUs, batch 128",
        "2 GPUs, batch 128 (gather_scatter)",
        "4 GPUs, batch 128",
    ]
    assert legend_labels(picture) == [
        *("data wait", "copy to device", "forward", "backward"),
        *("backward communication", "optimizer"),
    ]
    widths = [[bar.get_width() for bar in axis.patches[at::4]] for at in range(4)]
    assert [sum(of) for of in widths] == pytest.approx(
        [20.1, 12.06, 16.08, 8.04], rel=1e-3
    )
    # 2 % of the 12.06 s stall, 1 % copies, 30 % forward, 5 % optimizer
    assert widths[1][:3] == pytest.approx([0.2412, 0.1206, 3.618])
    assert axis.get_xlabel() == "seconds per epoch"


# ---- numbers that a check doubts, other references, several groups ----


def hollow(axis):
    """Return the numbers of hollow markers."""
    faces = [line for line in axis.lines if line.get_markerfacecolor() == picture.PAPER]
    return sorted(float(y) for line in faces for y in line.get_ydata())


def test_doubtful_numbers_are_hollow_and_explained(builder, given_checks):
    builder.with_published_study()
    doubt = CheckResult(check="scatter", level=Level.WARN, reason="of this test")
    given_checks[lab_cell(4, 512).slug] = (doubt,)
    report = builder.collect()
    picture = PLOTS["speedup"](report)
    assert hollow(picture.figure.axes[0]) == [pytest.approx(25.945 / 15.127)]
    labels = cell_labels(PLOTS["phases"](report).figure.axes[0])
    marked = [label for label in labels if "!" in label]
    assert marked == ["! 4 GPUs, batch 512"]
