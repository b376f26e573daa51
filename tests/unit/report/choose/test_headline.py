"""A headline recommends what stands against the noise of its runs; else it names both cells."""

import re
from io import StringIO
from itertools import permutations

import pandas as pd
import pytest
from msgspec.structs import replace

from hpml_jobs.core.check_result import CheckResult, Level
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.report.files import frames
from tests.unit.builders import a_cell, a_record
from tests.unit.check_cases import change_epoch, late_rank
from tests.unit.report.choose.made_choice import made_choice
from tests.unit.study_builder import StudyBuilder

pytestmark = pytest.mark.usefixtures("no_checks")

COMMAND = "hpml-jobs -m gpus=1,2 batch=32,128 workload=digits study=hw5"


def noisy(record, noise):
    """The same record, of which ten blocks of iterations scatter by a share."""
    steps = record.ranks[0].timed.steps
    blocks = tuple(steps.median_s * (1 + noise * (-1) ** n * 0.95) for n in range(10))
    return change_epoch("timed", steps=replace(steps, block_medians_s=blocks))(record)


def add(builder, gpus, *epochs_s, noise=0.0, batch=128, **changes):
    for repeat, epoch_s in enumerate(epochs_s):
        cell = a_cell(gpus=gpus, batch=batch, repeat=repeat, **changes)
        builder.with_record(
            noisy(a_record(cell, f"1{gpus}{repeat}_0.r0", epoch_s), noise)
        )


def made_of(builder, commands=(COMMAND,), **wish):
    return made_choice(builder, commands=commands, **wish)


@pytest.mark.parametrize(
    ("two_s", "noise", "is_decided"),
    [
        (5.0, 0.0, True),  # efficiency 0.80
        (5.0, 0.02, True),
        (5.0, 0.10, False),
        (6.5, 0.10, False),  # efficiency 0.615: one process by its median
        (6.5, 0.02, True),
        (4.1, 0.10, True),  # efficiency 0.98
    ],
)
def test_limit_inside_of_the_interval_is_not_decided(two_s, noise, is_decided, builder):
    add(builder, 1, 8.0, noise=noise)
    add(builder, 2, two_s, noise=noise)
    made = made_of(builder)
    answer, first = made.table.answer, made.next_cells[0]
    if is_decided:
        asked = (
            "2 GPUs at batch 128 per GPU (ddp)"
            if two_s < 8 / 1.4
            else "1 GPU at batch 128"
        )
        assert answer.startswith(f"Use {asked}")
        assert "decide" not in answer
        return
    either = "2 GPUs or 1 GPU" if two_s < 8 / 1.4 else "1 GPU or 2 GPUs"
    assert answer.startswith(
        f"Not decided yet: {either}, batch 128 per GPU. 2 GPUs have "
    )
    interval = (
        r"an efficiency of (\S+) %, between (\S+) % and (\S+) % by one run of each, "
        r"and the limit is "
        r"70 %: (\d+) runs of each setting would decide"
    )
    clause = re.search(interval, answer)
    assert clause
    assert float(clause[2]) < 70 < float(clause[3])
    runs = int(clause[4])
    assert runs >= 4
    expected = (
        f"hpml-jobs -m gpus=1,2 batch=128 repeats={runs} workload=digits study=hw5"
    )
    assert first == f"To run them:\n{expected}"


def test_cells_of_one_size_within_their_noise_are_both_named(builder):
    add(builder, 1, 8.0, noise=0.01)
    add(builder, 2, 4.2, noise=0.10)
    add(builder, 2, 4.5, noise=0.10, batch=32)
    made = made_of(builder)
    assert made.table.answer.startswith(
        "Not decided yet: 2 GPUs at batch 128 per GPU (ddp) or 2 GPUs at batch 32 per GPU (ddp). "
    )
    assert (
        ". The first is 1.07 times as fast as the second, between " in made.table.answer
    )
    assert " -m gpus=2 batch=32,128 repeats=" in made.next_cells[0]
    add(builder, 2, 6.5, noise=0.10, batch=64)  # outside of the noise
    assert made_of(builder).table.answer == made.table.answer


def test_more_noise_asks_for_more_repeats_and_one_study_for_few(builder):
    runs = []
    for noise in (0.05, 0.10, 0.30):
        add(builder, 1, 8.0, noise=noise)
        add(builder, 2, 5.6, noise=noise)
        runs.append(
            int(made_of(builder).next_cells[0].partition("repeats=")[2].split()[0])
        )
    assert runs == sorted(runs)
    # what one run says of the distance is not taken to the letter
    assert runs[-1] <= 20


def test_repeats_decide_by_their_tests_whatever_each_run_scatters(builder):
    add(builder, 1, 8.0, 8.01, 8.02, 7.99, noise=0.10)
    add(builder, 2, 5.0, 5.01, 5.02, 4.99, noise=0.10)
    assert made_of(builder).table.answer.startswith("Use 2 GPUs at batch 128")


def test_efficiency_has_the_interval_of_its_speedup(builder):
    """In Table 1 the speedup is 1.57 [1.33, 1.74]."""
    add(builder, 1, 8.0, 8.0)
    add(builder, 2, 4.6, 6.0)
    answer = made_of(builder).table.answer
    assert "an efficiency of 75.5 %, between 66.7 % and 87 % by these runs" in answer


def test_submission_with_strategies_is_repeated_as_a_whole(builder):
    add(builder, 1, 8.0, noise=0.10)
    add(builder, 2, 5.0, noise=0.10, strategy=Strategy.ALLREDUCE)
    command = "hpml-jobs -m gpus=1,2 batch=128 strategy=allreduce study=hw5"
    (first, *_) = made_of(builder, (command,)).next_cells
    runs = first.partition("repeats=")[2]
    assert int(runs) > 1
    assert first == f"To run them:\n{command} repeats={runs}"


@pytest.mark.parametrize("level", [Level.WARN, Level.FAIL])
def test_warning_is_a_mark_and_a_failure_a_headline(level, builder, given_checks):
    for gpus, epoch_s in ((1, 8.0), (2, 4.2), (4, 3.0)):
        add(builder, gpus, epoch_s)
    slug = a_cell(gpus=1, batch=128).slug
    given_checks[slug] = (
        CheckResult(check="efficiency", level=level, reason="others"),
    )
    answer = made_of(builder, epochs=10, min_efficiency=0.8).table.answer
    if level is Level.FAIL:
        assert answer.startswith("Not reliable yet (a check failed for 1 GPU): use 2")
        return
    assert answer.startswith("Use 2 GPUs at batch 128 per GPU (ddp): the most")
    assert "here !95.2 %" in answer
    slug = a_cell(gpus=2, batch=128).slug
    given_checks[slug] = (CheckResult(check="disturbed", level=level, reason="others"),)
    answer = made_of(builder, epochs=10, min_efficiency=0.8).table.answer
    assert "It takes !4.200 s per epoch" in answer
    assert "10 epochs take !0.700 min and cost !0.0233 GPU-hours" in answer


def test_order_of_repeats_changes_no_digit(tmp_path, monkeypatch):
    """Every CSV file is the same but for the names of the cells and the list of the runs' times."""
    monkeypatch.undo()  # real checks
    times_s = {
        1: (8.0, 8.3, 7.9, 8.8),
        2: (4.6, 4.4, 5.3, 4.5),
        4: (2.5, 2.7, 2.6, 2.4),
    }
    seen = set()
    for number, order in enumerate(list(permutations(range(4)))[::5]):
        builder = StudyBuilder(tmp_path / f"study-{number}" / "lab")
        for gpus, epochs_s in times_s.items():
            for repeat, of in enumerate(order):
                record = a_record(
                    a_cell(gpus=gpus, batch=128, repeat=repeat), "1_0.r0", epochs_s[of]
                )
                late = late_rank(gpus - 1, "forward_s", 0.1 * of)
                builder.with_record(late(record) if gpus > 1 else record)
        report = builder.collect()
        files = []
        for name, text in frames.csv_files(report).items():
            frame = pd.read_csv(StringIO(text), dtype=str)
            unnamed = frame.drop(
                columns=["slug", "cell", "cells", "repeat", "all_epoch_s"],
                errors="ignore",
            )
            lines = unnamed.to_csv(index=False).splitlines()
            files.append((name, *sorted(lines)))
        seen.add(tuple(files))
    assert len(seen) == 1
