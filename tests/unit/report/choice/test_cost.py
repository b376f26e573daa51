"""What an epoch costs: charged GPUs, joules, FLOP/s."""

import pytest
from msgspec.structs import replace

from hpml_jobs.core.cluster import Cluster, Isolate
from hpml_jobs.core.measurements import Energy
from hpml_jobs.report.files.frames import csv_files
from hpml_jobs.report.report import ReportOptions, make_report
from hpml_jobs.results.gpus import peak_of, peak_rate
from hpml_jobs.study.snapshot import read_snapshots
from tests.unit.builders import (
    V100,
    a_cell,
    lab_cell,
    lab_record,
    texts_by_label,
)
from tests.unit.check_cases import change_epoch, clean_record

A100 = replace(V100, gpu_model="NVIDIA A100-SXM4-80GB")


def with_energy(record, *joules):
    """The record with the energy of the timed epoch of each rank; None: no counter."""
    for number, value in enumerate(joules):
        gpu = (
            None
            if value is None
            else Energy(uuid=f"GPU-{number}", joules=value, window_s=8.1)
        )
        record = change_epoch("timed", number, energy=gpu and (gpu,))(record)
    return record


def columns(table):
    return [block.head for block in table.blocks]


def test_published_study_costs_by_hand(builder):
    """2 V100 at batch 512: 2 x 15.664 s for 50,000 images of 3.329 GFLOP, 15.7 TFLOP/s at most."""
    table = builder.with_published_study().table("choice")
    assert columns(table)[-4:] == [
        "cost per epoch",
        "TFLOP/s per GPU",
        "% of peak",
        "why",
    ]
    texts = texts_by_label(table)
    assert texts["2 GPUs, batch 512"][3:6] == ("0.00870", "5.31", "33.8")
    assert texts["1 GPU, batch 512"][3:6] == ("0.00721", "6.42", "40.9")
    peak = (
        "15.70 TFLOP/s dense fp32, Tesla V100-SXM2-16GB (NVIDIA V100 datasheet, SXM2)."
    )
    assert f"% of peak (MFU): TFLOP/s / {peak}" in table.caption


def test_whole_nodes_are_charged_where_they_are_exclusive(builder):
    builder.with_record(lab_record(lab_cell(2, 512, gpu_type="v100"), 36.0))
    exclusive = Cluster(name="c", gpu_types={"v100": 4}, isolate=Isolate.EXCLUSIVE)
    snapshots = read_snapshots(builder.study.cells())
    for cluster, gpus, hours in ((None, 2, 0.02), (exclusive, 4, 0.04)):
        report = make_report("study", snapshots, (), ReportOptions(cluster=cluster))
        table = next(
            table for table in report.groups[0].full if table.label == "choice"
        )
        (values,) = (
            dict(zip(table.sheet.columns, row, strict=True)) for row in table.sheet.rows
        )
        assert values["charged_gpus"] == gpus
        assert values["charged_gpu_hours"] == pytest.approx(hours)
        assert values["flop_per_s_per_gpu"] == pytest.approx(
            3_328_997_376 * 50_000 / 36.0 / 2
        )


def test_energy_of_all_gpus_is_summed_everywhere(builder):
    """Four ranks with 500 J: 2,000 J for 20,480 samples."""
    record = with_energy(clean_record(a_cell(batch=32)), 500.0, 500.0, 500.0, 500.0)
    table = builder.with_record(record).table("choice")
    assert texts_by_label(table)["4 GPUs, batch 32"][4] == "2000"
    assert any(line.startswith("J: NVML's energy counters") for line in table.caption)
    assert "J per epoch" in columns(table)
    (values,) = (
        dict(zip(table.sheet.columns, row, strict=True)) for row in table.sheet.rows
    )
    assert values["joules"] == 2000.0
    assert ",2000.0," in csv_files(builder.collect(), has_all=False)["cells.csv"]


def test_gpu_without_counter_leaves_a_dash_not_a_part(builder):
    record = with_energy(clean_record(a_cell(batch=32)), 500.0, 500.0, None, 500.0)
    table = builder.with_record(record).table("choice")
    assert "J per epoch" not in columns(table)
    assert "joules" not in table.sheet.columns


def test_gpu_shared_by_two_ranks_counts_once():
    record = with_energy(clean_record(a_cell(gpus=2, batch=32)), 500.0, 500.0)
    same = (Energy(uuid="GPU-0", joules=510.0, window_s=8.1),)
    assert change_epoch("timed", 1, energy=same)(record).joules == 510.0


@pytest.mark.parametrize(
    ("gpu", "precision", "tf32", "tflop_per_s"),
    [
        ("NVIDIA A100-SXM4-80GB", "bf16", True, 312.0),
        ("NVIDIA A100-SXM4-80GB", "fp32", True, 156.0),
        ("NVIDIA A100-SXM4-80GB", "fp32", False, 19.5),
        ("Tesla V100-SXM2-32GB", "fp32", True, 15.7),
        ("NVIDIA A100-SXM4-80GB", "unknown", True, None),
        ("NVIDIA GeForce 256", "fp32", True, None),
    ],
)
def test_peak_is_that_of_board_and_precision(gpu, precision, tf32, tflop_per_s):
    peak = peak_rate(gpu, precision, tf32=tf32)
    assert (peak and peak.flop_per_s) == (
        tflop_per_s and pytest.approx(tflop_per_s * 1e12)
    )


def test_mixed_gpus_have_no_peak():
    record = clean_record()
    assert peak_of(record).precision == "tf32"
    mixed = [replace(rank, devices=(f"GPU {rank.rank % 2}",)) for rank in record.ranks]
    assert peak_of(replace(record, ranks=tuple(mixed))) is None
