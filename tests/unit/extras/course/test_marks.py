"""A figure that a check doubts has its mark in sentences, boxes and files as it has in tables."""

import re

import pytest

from hpml_jobs.core.check_result import Affected, CheckResult, Level
from hpml_jobs.extras.course import handin
from hpml_jobs.extras.course.communication import bandwidths, communication_seconds
from hpml_jobs.extras.course.times import epoch_by_batch, speedups
from hpml_jobs.report.choose import words
from hpml_jobs.report.choose.rules import Wish, choose
from hpml_jobs.report.frame.numbers import ratio, seconds, share_text, three_digits
from hpml_jobs.report.overview import overview
from hpml_jobs.report.page.contents import answer_items
from tests.unit.builders import a_cell, a_record

TIMES_S = {
    (1, 128): 40.11,
    (1, 256): 38.22,
    (2, 128): 21.33,
    (2, 256): 20.44,
    (4, 128): 11.55,
}


def is_marked(figure, text):
    """Whether a text has the figure, and nowhere without the mark."""
    found = re.findall(rf"(?<![\d.])(!?){re.escape(figure)}(?![\d])", text)
    return bool(found) and set(found) == {"!"}


@pytest.fixture
def report(builder, given_checks):
    """A report in which a check warns of every number of 4 GPUs, and of the one GPU's."""
    for (gpus, batch), epoch_s in TIMES_S.items():
        cell = a_cell(gpus=gpus, batch=batch)
        builder.with_record(a_record(cell, f"1{gpus}{batch}_0.r0", epoch_s))
        if gpus == 4 or (gpus, batch) == (1, 256):
            affects = (
                Affected.TIME,
                Affected.SPLIT,
                Affected.BANDWIDTH,
                Affected.LEARNING,
            )
            warning = CheckResult(
                check="disturbed", level=Level.WARN, reason="x", affects=affects
            )
            given_checks[cell.slug] = (warning,)
    return builder.collect()


def test_sentences_of_times_and_ratios_are_marked(report):
    (group,) = report.groups
    source, choice = group.source, group.choice
    four = next(row for row in source.timed if row.gpus == 4)
    time_s, speedup = seconds(11.55), ratio(four.speedup)
    answer = " ".join(overview(report, group).answer)
    asked = choice.ask.candidate
    assert asked.row is four
    for text in (answer, speedups(source).text):
        assert is_marked(time_s, text), text
    assert is_marked(share_text(asked.efficiency), answer)
    assert is_marked(speedup, speedups(source).text)
    assert is_marked(seconds(38.22 * 0.98), epoch_by_batch(source).text)
    assert not is_marked(seconds(40.11 * 0.98), epoch_by_batch(source).text)
    steps = [words.step_text(step) for step in choice.steps]
    assert is_marked(seconds(20.44 - 11.55), " ".join(steps))
    trained = choose(source, Wish(epochs=90))
    assert "90 epochs take !17.3 min and cost !1.16 GPU-hours" in words.answer(
        trained, "hw5"
    )


def test_sentences_of_splits_and_bandwidths_are_marked(report):
    (group,) = report.groups
    four = next(row for row in group.source.timed if row.gpus == 4)
    assert is_marked(
        seconds(four.figures.comm_s), communication_seconds(group.source).text
    )
    reached = three_digits(four.bandwidth.lab_gb_per_s)
    assert is_marked(reached, bandwidths(group.source).text)


def test_box_of_the_page_and_files_to_hand_in_are_marked(report):
    headline = next(iter(answer_items(report, report.groups[0])))
    values = " ".join(value for value, _ in headline.figures)
    assert is_marked(seconds(11.55), values)
    assert is_marked(
        ratio(report.groups[0].choice.speedup(report.groups[0].choice.fastest[0])),
        values,
    )
    readme = handin.files(report, handin.Student())["README.md"]
    assert is_marked("11.550", readme)
    assert not is_marked("21.330", readme)
