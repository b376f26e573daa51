"""Quantization: the lab's table over all networks, layers, spreads, latency, and their pictures."""

import msgspec
import pytest
from msgspec.structs import replace

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.quantization import quantized_of
from hpml_jobs.report.quantization import networks_of
from tests.unit.builders import LENET, lab_cell, lab_record
from tests.unit.quantization_results import part

LAB, FULL = Protocol.LAB, Protocol.FULL


def add_quantized(
    builder,
    workload,
    *,
    asked=None,
    protocol=LAB,
    seed=0,
    repeat=0,
    of_cell=None,
    **changes,
):
    """A trained LeNet with what its quantization left."""
    asked = part(**({"calibration": 1_000} | (asked or {})))
    more = {"protocol": protocol, "quantize": asked, "seed": seed, "repeat": repeat}
    more |= of_cell or {}
    whole = lab_record(lab_cell(1, 32, workload=workload, **more), 3.0)
    found = msgspec.to_builtins(replace(quantized_of(whole), **changes))
    builder.with_record(replace(whole, quantized=found))


def combined_table(builder):
    (table,) = builder.collect().tables
    return table


def test_accuracy_and_drop_have_deviations_over_seeds(builder):
    add_quantized(builder, LENET)
    add_quantized(builder, LENET, seed=100)  # 100 more images are right with fp32
    table = combined_table(builder)
    assert table.lines[0].texts[3:5] == ("65.50 ± 0.71", "–")
    assert table.lines[1].texts[3:5] == ("64.90 ± 0.00", "0.60 ± 0.71")
    row = dict(zip(table.sheet.columns, table.sheet.rows[1], strict=True))
    assert (row["runs"], row["drop"]) == (2, pytest.approx(0.006))
    assert table.notes == ("torch's own int8: pt2e 0.18 (lenet_cifar10)",)


def test_networks_of_several_groups_are_named_by_what_differs(builder):
    for workload in (LENET, replace(LENET, name="mine")):
        for epochs in (2, 5):
            add_quantized(builder, workload, of_cell={"epochs": epochs})
    add_quantized(builder, LENET, of_cell={"epochs": 5, "loader_workers": 4})
    assert list(networks_of(builder.collect().sources)) == [
        "lenet_cifar10, 5 epochs, DataLoader workers per process 2, 1 GPU, batch 32, epochs 5",
        "lenet_cifar10, 5 epochs, DataLoader workers per process 4, 1 GPU, batch 32, epochs 5",
        "lenet_cifar10, epochs 2",
        "mine, epochs 5",
        "mine, epochs 2",
    ]


def test_quantization_settings_split_rows_and_name_difference(builder):
    """Runs with other quantization settings are not averaged; the setting is named."""
    for asked, repeat in (
        ({}, 0),
        ({"calibration": 100}, 0),
        ({"calibration": 100}, 1),
    ):
        add_quantized(builder, LENET, asked=asked, repeat=repeat)
    named = ["lenet_cifar10, calibration 100", "lenet_cifar10, calibration 1000"]
    report = builder.collect()
    networks = networks_of(report.sources)
    assert list(networks) == named
    assert [len(network.quantized) for network in networks.values()] == [2, 1]
    rows = builder.sheet("spreads").rows
    assert list(dict.fromkeys(row[0] for row in rows)) == named
    assert (
        list(dict.fromkeys(line.label for line in combined_table(builder).lines))
        == named
    )
