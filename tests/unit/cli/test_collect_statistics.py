"""`collect`: decisions, ratios and costs that an earlier version got wrong, by the command line."""

import csv

import msgspec
import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.strategies import Strategy
from tests.unit.builders import lab_cell, lab_record
from tests.unit.study_builder import StudyBuilder

replace = msgspec.structs.replace


@pytest.fixture
def builder(slurm, working_folder):
    return StudyBuilder(working_folder / "outputs" / "mine")


def with_epochs(record, change):
    """The record with changed epochs on every rank."""
    ranks = [
        replace(rank, epochs=tuple(map(change, rank.epochs))) for rank in record.ranks
    ]
    return replace(record, ranks=tuple(ranks))


def collect(builder, capsys, label):
    """What the command prints, as one line, and the rows of a CSV file."""
    assert run(["collect", "mine", "--all"]) == 0, capsys.readouterr().err
    with (builder.study.report / f"{label}.csv").open() as file:
        return " ".join(capsys.readouterr().out.split()), list(csv.DictReader(file))


def add_runs(builder, times_s, strategy, gpus=2):
    for repeat, epoch_s in enumerate(times_s):
        cell = lab_cell(gpus, 128, repeat=repeat, strategy=strategy)
        builder.with_record(lab_record(cell, epoch_s))


def test_weak_efficiency_differs_from_scaled_efficiency(builder, capsys):
    """b = 2,048: 25 iterations on 1 GPU, 7 on 4, the last of them small."""
    for gpus, epoch_s, step_s in ((1, 25.0, 1.0), (4, 8.4, 1.25)):

        def steps(epoch, step_s=step_s):
            return replace(epoch, steps=replace(epoch.steps, full_median_s=step_s))

        record = lab_record(lab_cell(gpus, 2048), epoch_s)
        builder.with_record(with_epochs(record, steps))
    _, (_, four) = collect(builder, capsys, "scaling")
    assert float(four["weak_efficiency"]) == pytest.approx(0.8)
    assert float(four["efficiency"]) == pytest.approx(25 / 8.4 / 4)
    assert float(four["cost_per_compute"]) == pytest.approx(4 * 8.4 / 25 - 1)
    assert "karp_flatt" not in four


def test_residual_counts_images_not_iterations(builder, capsys):
    """50,000 images: a quarter of the baseline's time, not 7 / 25 of it."""
    builder.with_record(lab_record(lab_cell(1, 2048), 25.0, 1.0))
    builder.with_record(lab_record(lab_cell(4, 2048), 8.4, 0.4))
    _, (row,) = collect(builder, capsys, "communication")
    assert float(row["comm_residual_s"]) == pytest.approx(8.0 - 24.0 / 4)


def test_negative_cost_within_resolution_is_not_resolved(builder, capsys):
    def noisy(epoch):
        epoch_s = 20.4 if epoch.role == "unsynced" else epoch.epoch_s
        return replace(
            epoch, epoch_s=epoch_s, steps=replace(epoch.steps, quartile_width_s=0.005)
        )

    builder.with_record(with_epochs(lab_record(lab_cell(2, 128), 20.0), noisy))
    out, (row,) = collect(builder, capsys, "communication")
    assert float(row["comm_cost_s"]) == pytest.approx(-0.4)
    assert float(row["comm_cost_resolution_s"]) == pytest.approx(196 * 0.005 / 2**0.5)
    assert "not resolved (±0.693)" in out


def test_packing_by_hand_is_not_computation(builder, capsys):
    def packed(epoch):
        phases = epoch.phases and replace(epoch.phases, pack_s=2.0)
        return replace(epoch, phases=phases)

    record = lab_record(lab_cell(2, 128, strategy=Strategy.ALLREDUCE), 20.0)
    builder.with_record(with_epochs(record, packed))
    out, (row,) = collect(builder, capsys, "table2")
    compute_s, comm_s = (
        float(row["batch_128_compute_s"]),
        float(row["batch_128_comm_s"]),
    )
    assert comm_s == pytest.approx(0.08 * 20.1 + 2.0)
    assert compute_s + comm_s == pytest.approx(0.98 * 20.1)
    assert "Comm includes packing by hand" in out
