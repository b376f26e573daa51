"""The first screen of a report: the answer first, at most 14 lines, everything else named."""

import csv
import io

import pytest
from msgspec.structs import replace
from rich.console import Console

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.script import Script
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.core.workload import SourceFile
from hpml_jobs.report.answer import answer_of
from hpml_jobs.report.files.frames import csv_files
from hpml_jobs.report.files.screen import LINES, show_first
from hpml_jobs.report.scaling.table import strong_table
from hpml_jobs.study.files import encode, write_whole
from tests.unit.builders import RESNET, lab_cell, lab_record, texts_by_label
from tests.unit.check_cases import change_scheduling, wait_for_cpu
from tests.unit.study_builder import page_text


def screen(report, width=110):
    console = Console(width=width, file=io.StringIO())
    show_first(report, console)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 110, 200])
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


@pytest.mark.parametrize("gpus", [1, 4])
def test_cell_that_waited_too_long_is_marked(gpus, builder):
    """A cell that waited for a CPU for 79 % of its epoch is said with its mark, and what helps."""
    for size, epoch_s in ((1, 30.0), (2, 16.0), (4, 9.0)):
        record = lab_record(lab_cell(size, 128), epoch_s)
        waits = wait_for_cpu(Role.TIMED, 0.79 * epoch_s)
        builder.with_record(waits(record) if size == gpus else record)
    report = builder.collect()
    answer = answer_of(report, report.groups[0])
    assert answer.sentence.startswith("1 -> 2 -> 4 GPUs: ")
    assert ", !3.33 times as fast at batch 128" in answer.sentence
    assert answer.marks[0] == (
        "! 1 of 3 runs was slowed down by other programs. Again:\n"
        "hpml-jobs resubmit lab-greene-v100 --disturbed"
    )


def test_speedups_have_the_mark_of_what_they_are_made_of(builder):
    """Of the baseline's time too: in Table 1, the CSV, Scaling and the answer."""
    disturb = change_scheduling(Role.TIMED, stolen_s=8.0)
    builder.with_record(disturb(lab_record(lab_cell(1, 128), 30.0)))
    builder.with_record(lab_record(lab_cell(2, 128), 16.0))
    report = builder.collect()
    texts = texts_by_label(builder.table("table1-ddp"))
    assert texts == {"1-GPU": ("!30.00", "1"), "2-GPU": ("16.00", "!1.88")}
    assert "!1.88 times as fast" in answer_of(report, report.groups[0]).sentence
    lines = csv_files(report)["table1.csv"].splitlines()
    columns = [*csv.DictReader(lines)]
    assert [row["batch_128_time_doubtful"] for row in columns] == ["True", "False"]
    assert [row["batch_128_speedup_doubtful"] for row in columns] == ["True", "True"]
    of_scaling = texts_by_label(builder.table("scaling"))["ddp 2-GPU b128"]
    assert sum(text.startswith("!") for text in of_scaling) == 4
    assert of_scaling[0] == "16.00"


def test_study_without_numbers_names_status(builder):
    builder.with_cell(lab_cell(1, 32), Outcome.PENDING, "pending in SLURM as job 17")
    report = builder.collect()
    lines = screen(report)
    at = lines.index("No cell has a number. To see why:")
    assert lines[at + 1] == f"  hpml-jobs status {report.study}"


def with_code(sha256):
    code = (SourceFile(name="net.py", sha256=sha256),)
    return {"workload": replace(RESNET, model="net:build", code=code)}


def with_args(args):
    return {"script": Script(path="train.py", args=args)}


@pytest.mark.parametrize(
    ("fixed_later", "outcome", "fields"),
    [
        (True, "failed", with_code),
        (False, "failed", with_code),
        (True, "pending", with_code),
        (True, "failed", with_args),
    ],
)
def test_dead_cells_of_older_code_are_one_line(fixed_later, outcome, fields, builder):
    """After a bug, its fix and the same command: the group with numbers is first, alone."""
    for sha256, began in (("bug", 20), ("fix", 30 if fixed_later else 10)):
        for gpus in (1, 2):
            cell = lab_cell(gpus, 32, **fields(sha256))
            record = lab_record(cell, 20.0 / gpus)
            started = f"2026-01-01T00:{began}:00Z"
            about = replace(record.attempt, started=started)
            folder = builder.study.cell(cell.slug)
            if sha256 == "fix":
                builder.with_record(replace(record, attempt=about))
            else:
                builder.with_cell(cell, Outcome(outcome), f"{outcome}: ValueError")
                write_whole(folder.attempt(about.id).about, encode(about))
            write_whole(folder.current, about.id.encode())
    report = builder.collect()
    text = "\n".join(screen(report))
    hidden = (
        "Older code or arguments are left out; all of it:\n"
        "  hpml-jobs collect lab-greene-v100 --all"
    )
    is_replaced = fixed_later and outcome == "failed"
    assert (hidden in text) == is_replaced
    assert "Table 1" in text
    with_numbers = [bool(group.source.timed) for group in report.first_screen.groups]
    assert with_numbers == ([True] if is_replaced else [True, False])
    assert "ValueError" in page_text(report)


def test_numbers_of_older_code_give_way_to_those_of_the_corrected_one(builder):
    """The newest code is first, whatever its hash; where it has all numbers it is alone."""
    older = {1: 20.0, 2: 15.0}
    for sha256, began, epochs_s in (("0bug", 20, older), ("fix", 30, {1: 19.0})):
        for gpus, epoch_s in epochs_s.items():
            _measured_with(builder, sha256, began, gpus, epoch_s)
    first, second = builder.collect().first_screen.groups
    assert [len(group.source.timed) for group in (first, second)] == [1, 2]
    _measured_with(builder, "fix", 31, 2, 10.0)
    (only,) = builder.collect().first_screen.groups
    assert [row.timing.epoch_s for row in only.source.timed] == [19.0, 10.0]
    report = builder.collect()
    assert "Older code or arguments are left out" in "\n".join(screen(report))
    assert ["(older version)" in group.title for group in report.groups] == [
        False,
        True,
    ]


def _measured_with(builder, sha256, began, gpus, epoch_s):
    """Add a cell that code of this hash measured, begun at this minute."""
    cell = lab_cell(gpus, 32, **with_code(sha256))
    record = lab_record(cell, epoch_s)
    started = f"2026-01-01T00:{began}:00Z"
    about = replace(record.attempt, started=started)
    builder.with_record(replace(record, attempt=about))
    write_whole(builder.study.cell(cell.slug).current, about.id.encode())


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
