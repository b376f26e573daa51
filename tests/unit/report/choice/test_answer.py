"""The answer: a measured fact with its interval first, whatever the runs scatter; then a wish."""

import json

import pytest
from msgspec.structs import replace

from hpml_jobs.core.recipe import Recipe
from hpml_jobs.core.record import Neighbours
from hpml_jobs.report.answer import answer_of
from hpml_jobs.report.choice import Wish
from hpml_jobs.report.files.json_tables import document
from hpml_jobs.report.report import ReportOptions, make_report
from hpml_jobs.study.snapshot import read_snapshots
from tests.unit.builders import a_cell, a_record
from tests.unit.check_cases import noisy

pytestmark = pytest.mark.usefixtures("no_checks")

COMMAND = "hpml-jobs -m gpus=1,2 batch=32,128 workload=digits study=hw5"


def add(builder, gpus, *epochs_s, noise=0.0, batch=128, **changes):
    for repeat, epoch_s in enumerate(epochs_s):
        cell = a_cell(gpus=gpus, batch=batch, repeat=repeat, **changes)
        number = len(builder.cells)
        builder.with_record(noisy(a_record(cell, f"1{number}_0.r0", epoch_s), noise))


def made_report(builder, **wish):
    snapshots = read_snapshots(builder.study.cells())
    options = ReportOptions(commands=(COMMAND,), wish=Wish(**wish))
    return make_report("hw5", snapshots, (), options)


def answer(builder, **wish):
    report = made_report(builder, **wish)
    (group,) = report.groups
    return answer_of(report, group)


def test_two_sizes_are_a_ratio_with_its_interval(builder):
    add(builder, 1, 8.0, noise=0.02)
    add(builder, 2, 5.0, noise=0.02)
    assert answer(builder).sentence == (
        "1 -> 2 GPUs: 1.60 times as fast at batch 128 per GPU (likely 1.51 to 1.69, one run each), "
        "efficiency 80 %."
    )


def test_noise_widens_the_interval_and_withholds_nothing(builder):
    add(builder, 1, 8.0, noise=0.3)
    add(builder, 2, 5.6, noise=0.3)
    assert answer(builder).sentence.startswith("1 -> 2 GPUs: 1.43 times as fast")


def test_batch_is_the_largest_that_is_nearly_as_fast_on_one_gpu(builder):
    for batch, one_s, two_s in ((32, 10.0, 6.0), (64, 8.0, 5.0), (128, 8.5, 6.0)):
        add(builder, 1, one_s, batch=batch)
        add(builder, 2, two_s, batch=batch)
    assert " at batch 128 " in answer(builder).sentence
    assert answer(builder).lines[0] == (
        "Why batch 128: the largest within 10 % of the fastest (batch 64) on 1 GPU, with the "
        "fewest messages. The fastest cell: 2 GPUs, batch 64."
    )
    add(builder, 1, 7.9, batch=256)
    assert " at batch 128 " in answer(builder).sentence
    assert not answer(builder).batch  # 256 is faster, but has one size
    add(builder, 1, 7.0, batch=48)
    add(builder, 2, 4.0, batch=48)
    assert "1.75 times as fast at batch 48 " in answer(builder).sentence


def test_one_size_is_the_time_of_its_best_batch(builder):
    add(builder, 1, 8.0, batch=128)
    add(builder, 1, 7.9, batch=64)
    shown = answer(builder)
    assert shown.sentence.startswith("1 GPU, batch 64: 7.900 s per epoch, ")
    assert shown.sentence.endswith(", the fastest of 2.")
    assert not shown.lines


@pytest.mark.parametrize(
    "neighbours", [None, Neighbours(jobs=0, same_user=0, users=())]
)
def test_another_size_is_proposed_in_jobs_of_slurm(builder, neighbours):
    record = a_record(a_cell(gpus=1), "10_0.r0", 8.0)
    attempt = replace(record.attempt, neighbours=neighbours)
    builder.with_record(replace(record, attempt=attempt))
    proposed = "A speedup needs another size" in answer(builder).sentence
    assert proposed is (neighbours is not None)


def test_treatments_are_no_sizes(builder):
    add(builder, 1, 8.0)
    add(builder, 2, 5.0)
    add(builder, 4, 3.0, recipe=Recipe(name="scaled", scaled=True))
    report = made_report(builder)
    (group,) = report.groups
    assert answer_of(report, group).sentence.startswith("1 -> 2 GPUs: 1.60")
    table = next(t for t in group.tables if t.label == "table1-ddp")
    assert [line.label for line in table.lines] == ["1-GPU", "2-GPU"]


def test_one_number_has_one_interval_everywhere(builder):
    add(builder, 1, 8.0, 8.2, 8.1)
    add(builder, 2, 4.6, 5.0, 4.7)
    report = made_report(builder)
    (group,) = report.groups
    *_, size = json.loads(document(report))["groups"][0]["answer"]["sizes"]
    ends = f"{size['low']:.2f} to {size['high']:.2f}"
    assert f"(likely {ends}, 3 runs each)" in answer_of(report, group).sentence
    (table,) = (t for t in group.tables if t.label == "table1-ddp")
    assert table.lines[1].texts[1] == f"1.72 [{ends.replace(' to ', ', ')}]"


@pytest.mark.parametrize(
    ("two_s", "limit", "start"),
    [
        (
            5.0,
            0.7,
            "Use 2 GPUs at batch 128 per GPU, the most measured that reach 70 % efficiency: "
            "1.60 times as fast (likely 1.56 to 1.65, one run each), efficiency 80 % (78 to 82 %).",
        ),
        (
            *(6.5, 0.7),
            "Use 1 GPU at batch 128 per GPU: 2 GPUs are 1.23 times as fast (likely 1.20 to "
            "1.27, one run each), efficiency 61.5 % (60 to 63 %), below 70 %.",
        ),
        (
            *(5.72, 0.7),
            "Use 2 GPUs at batch 128 per GPU, though they may not reach 70 % efficiency: they "
            "are 1.40 times as fast (likely 1.36 to 1.44, one run each), efficiency 69.9 % "
            "(68 to 72 %). To decide:\n"
            "hpml-jobs -m gpus=1,2 batch=128 repeats=auto ",
        ),
    ],
)
def test_wish_for_an_efficiency_asks_for_the_most_gpus(two_s, limit, start, builder):
    add(builder, 1, 8.0, noise=0.01)
    add(builder, 2, two_s, noise=0.01)
    assert answer(builder, min_efficiency=limit).sentence.startswith(start)


def test_wish_within_a_budget_asks_for_the_fastest(builder):
    add(builder, 1, 36.0)
    add(builder, 2, 20.0)
    asked = answer(builder, epochs=100, gpu_hours=1.2)
    assert asked.sentence == (
        "Use 2 GPUs, batch 128: the fastest with 100 epochs within 1.2 GPU-hours."
    )
    assert asked.training == "100 epochs on 2 GPUs take 33 min and 1.11 GPU-hours."
    assert answer(builder, epochs=100, gpu_hours=0.5).sentence == (
        "Nothing does 100 epochs within 0.5 GPU-hours: 1 GPU, batch 128 needs least, 1.00."
    )
