"""The first screen of a report: the answer first, at most 14 lines, everything else named."""

import csv
import io

import pytest
from msgspec.structs import replace
from rich.console import Console

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.report.answer import answer_of
from hpml_jobs.report.files.frames import csv_files
from hpml_jobs.report.files.screen import LINES, show_first
from hpml_jobs.report.scaling.sizes import strong_table
from tests.unit.builders import lab_cell, lab_record, texts_by_label
from tests.unit.check_cases import change_scheduling, wait_for_cpu
from tests.unit.results.checks.test_recorded_faults import recorded


def screen(report, width=110):
    console = Console(width=width, file=io.StringIO())
    show_first(report, console)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 200])
def test_first_screen_has_at_most_14_lines(builder, width):
    builder.with_published_study(but=((4, 512), (1, 32)))
    for strategy in (Strategy.ALLREDUCE, Strategy.GATHER_SCATTER, Strategy.DP):
        for batch in (32, 128, 512):
            builder.with_record(lab_record(lab_cell(2, batch, strategy=strategy), 30.0))
    builder.with_out_of_memory(lab_cell(4, 512))
    builder.with_cell(lab_cell(1, 32), Outcome.FAILED, "rank 0: ValueError")
    for threads in (2, 3, 4):  # groups of other conditions
        builder.with_record(lab_record(lab_cell(2, 64, threads=threads), 12.0))
        builder.with_record(lab_record(lab_cell(1, 64, threads=threads), 20.0))
    lines = screen(builder.collect(), width)
    assert len(lines) <= LINES == 13
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    assert text.startswith("threads per process 1: 1 -> 2 -> 4 GPUs: ")
    for threads in (2, 3, 4):
        assert f"threads per process {threads}" in text


def test_table_keeps_the_batches_that_fit(builder):
    """The columns of a block may be wider than its heading."""
    for gpus in (1, 2, 4):
        for batch in (1, 2, 4, 8):
            builder.with_record(
                lab_record(lab_cell(gpus, batch), 1000.0 / batch / gpus)
            )
    for gpus in (1, 2):
        builder.with_out_of_memory(lab_cell(gpus, 4096))
    report = builder.collect()
    for width in range(60, 120):
        (heads,) = (line for line in screen(report, width) if "Table 1" in line)
        assert "batch 8 per GPU" in heads
        if "4096" in heads:  # it has no number
            assert "batch 1 per GPU" in heads


def test_cell_that_waited_too_long_is_marked(builder):
    """A cell that waited for a CPU for 79 % of its epoch is said with its mark, and what helps."""
    for size, epoch_s in ((1, 30.0), (2, 16.0), (4, 9.0)):
        record = lab_record(lab_cell(size, 128), epoch_s)
        waits = wait_for_cpu(Role.TIMED, 0.79 * epoch_s)
        builder.with_record(waits(record) if size == 4 else record)
    report = builder.collect()
    answer = answer_of(report, report.groups[0])
    assert answer.sentence.startswith("1 -> 2 -> 4 GPUs: ")
    assert ", !3.33 times as fast at batch 128" in answer.sentence
    assert answer.marks[0] == (
        "! 1 of 3 runs disturbed by other programs. When it is quiet:\n"
        "hpml-jobs resubmit lab-greene-v100 --disturbed"
    )
    # of an older version of the code, no command measures it again
    older = replace(report.groups[0], is_replaced=True)
    assert not any("resubmit" in mark for mark in answer_of(report, older).marks)


def test_answer_is_of_a_batch_without_a_mark(builder):
    """Of the batches with the most sizes, also if the other one is faster."""
    disturb = change_scheduling(Role.TIMED, stolen_s=8.0)
    for batch, epoch_s in ((32, 40.0), (128, 30.0)):
        builder.with_record(lab_record(lab_cell(1, batch), epoch_s))
    builder.with_record(lab_record(lab_cell(2, 32), 25.0))
    marked = lab_record(lab_cell(2, 128), 16.0)
    builder.with_record(disturb(marked))
    (group,) = builder.collect().groups
    assert answer_of(builder.collect(), group).sentence.startswith(
        "1 -> 2 GPUs: 1.60 times as fast at batch 32"
    )
    builder.with_record(marked)
    (group,) = builder.collect().groups
    assert (
        "1.88 times as fast at batch 128"
        in answer_of(builder.collect(), group).sentence
    )


def test_speedups_have_the_mark_of_what_they_are_made_of(builder):
    """Of the baseline's time too: in Table 1, the CSV, Scaling and the answer."""
    disturb = change_scheduling(Role.TIMED, stolen_s=8.0)
    builder.with_record(disturb(lab_record(lab_cell(1, 128), 30.0)))
    builder.with_record(lab_record(lab_cell(2, 128), 16.0))
    report = builder.collect()
    texts = texts_by_label(builder.table("table1-ddp"))
    assert texts == {"1-GPU": ("!30.00", "1"), "2-GPU": ("16.00", "!1.88 [1.45, 2.42]")}
    assert "!1.88 times as fast" in answer_of(report, report.groups[0]).sentence
    lines = csv_files(report, has_all=False)["table1.csv"].splitlines()
    columns = [*csv.DictReader(lines)]
    assert [row["batch_128_time_doubtful"] for row in columns] == ["True", "False"]
    assert [row["batch_128_speedup_doubtful"] for row in columns] == ["True", "True"]
    of_scaling = texts_by_label(builder.table("scaling"))["2 GPUs, batch 128"]
    assert sum(text.startswith("!") for text in of_scaling) == 2
    assert of_scaling[0] == "16.00"


def test_strong_scaling_study_shows_its_own_table(builder):
    """No batch per GPU has two sizes: Table 1 would be times and dashes."""
    for gpus, epoch_s in ((1, 100.0), (2, 58.1), (4, 38.0)):
        builder.with_record(lab_record(lab_cell(gpus, 32 // gpus), epoch_s))
    report = builder.collect()
    table = strong_table(report.groups[0].source)
    assert [line.texts for line in table.lines] == [
        ("32", "100.0", "1.00", "100 %"),
        ("32", "58.10", "1.72", "86.1 %"),
        ("32", "38.00", "2.63", "65.8 %"),
    ]
    lines = screen(report, 80)
    assert "at global batch 32" in " ".join(lines[:2])
    assert any("global batch │ Time(s)" in line for line in lines)
    assert not any(line.startswith("Table 1") for line in lines)


def test_epochs_of_other_work_are_said_instead_of_causes(builder):
    for size in (1, 2):
        builder.with_record(recorded(f"every-sample-{size}.json"))
    report = builder.collect()
    answer = answer_of(report, report.groups[0])
    assert not answer.why
    assert any("an epoch has 4,096 samples" in mark for mark in answer.marks)
