"""Unlike records never share a table, and the report says what differs."""

import pytest
from msgspec.structs import replace

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.rank import NodeSystem
from hpml_jobs.core.workload import SourceFile
from tests.unit.builders import DIGITS, RESNET, V100, lab_cell, lab_record

RTX = "Quadro RTX 8000"


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("GPU model", {"gpu_model": RTX}),
        ("driver", {"driver": "535.1"}),
        ("torch", {"torch": "2.14.1"}),
        ("TF32 in matmul", {"tf32_matmul": True}),
        ("commit", {"commit": "fedcba"}),
        ("environment", {"environment": {"ATEN_CPU_CAPABILITY": "default"}}),
    ],
)
def test_record_under_other_conditions_gets_its_own_group(builder, what, change):
    builder.with_published_study(but=((4, 32),))
    other = replace(V100, **change)
    builder.with_record(lab_record(lab_cell(4, 32), 20.0, 0.0, other))
    report = builder.collect()
    assert len(report.groups) == 2
    assert [text.partition(":")[0] for text in report.differences] == [what]
    few, many = sorted(report.groups, key=lambda group: len(group.source.cells))
    assert [line.label for line in few.tables[0].lines] == ["1-GPU", "4-GPU"]
    assert few.tables[0].lines[1].texts == ("20.00", "–")
    note = f"measured under other conditions (group {many.number}): 1 GPU at batch 32"
    assert note in few.tables[0].notes
    away = f"measured under other conditions (group {few.number}): 4 GPUs at batch 32"
    assert away in many.tables[1].notes


@pytest.mark.parametrize("change", [{"epochs": 5}, {"threads": 2}])
def test_cells_with_other_settings_get_their_own_group(builder, change):
    builder.with_published_study()
    builder.with_record(lab_record(lab_cell(2, 32, **change), 20.0))
    assert len(builder.collect().groups) == 2


@pytest.mark.usefixtures("no_checks")
@pytest.mark.parametrize("change", [{"protocol": Protocol.LAB}, {"probe_s": 5.0}])
def test_settings_without_effect_on_timing_share_a_group(builder, change):
    """Settings that do not change the timed epoch do not split a group."""
    builder.with_published_study(but=((2, 32),))
    builder.with_record(lab_record(lab_cell(2, 32, **change), 20.0))
    assert len(builder.collect().groups) == 1
    assert builder.table("table1-ddp").lines[1].texts[0] == "20.00"


@pytest.mark.usefixtures("no_checks")
def test_other_seed_counts_as_another_run(builder):
    builder.with_published_study()
    builder.with_record(lab_record(lab_cell(2, 32, seed=1), 20.0))
    table = builder.table("table1-ddp")
    assert table.lines[1].texts[0] == "25.41"  # the median of 30.819 and 20.0
    assert "Median of 1 to 2 runs." in table.caption[1]


def test_hosts_of_one_type_and_backend_share_a_group(builder):
    builder.with_published_study(but=((4, 32),))
    other = lab_record(lab_cell(4, 32), 20.0, 0.0, replace(V100))
    facts = replace(V100, backend="nccl", os="Linux-6.1", topology="NV2")
    attempt = replace(other.attempt, hosts=("node9",))
    builder.with_record(replace(other, facts=facts, attempt=attempt))
    report = builder.collect()
    assert len(report.groups) == 1
    assert report.differences == ()


def test_cell_whose_second_node_differs_gets_its_own_group(builder):
    builder.with_published_study(but=((4, 32),))
    record = lab_record(lab_cell(4, 32), 20.0)
    nodes = [
        NodeSystem(cpu_model=model, driver=V100.driver)
        for model in (V100.cpu_model, "AMD EPYC")
    ]
    ranks = [
        replace(rank, node=node)
        for rank, node in zip(record.ranks, [*nodes, None, None], strict=True)
    ]
    builder.with_record(replace(record, ranks=tuple(ranks)))
    report = builder.collect()
    assert [text.partition(":")[0] for text in report.differences] == ["CPU model"]
    assert f"AMD EPYC + {V100.cpu_model}" in report.differences[0]


@pytest.mark.parametrize(
    ("data", "model", "change", "groups"),
    [
        ("digits", "cnn", {"torchvision": "0.1"}, 1),
        ("cifar10", "resnet18_cifar10", {"torchvision": "0.1"}, 2),
        ("digits", "net:build", {"packages": {"timm": "1.0 1a2b3c4"}}, 2),
        (
            "digits",
            "net:build",
            {"imported": (SourceFile(name="a.py", sha256="1"),)},
            2,
        ),
        ("digits", "cnn", {"os": "Linux-2.6", "python": V100.python}, 1),
    ],
)
def test_software_separates_cells_only_if_they_use_it(
    builder, data, model, change, groups
):
    workload = replace(RESNET, data=data, model=model, parameters=None)
    for gpus, facts in ((1, V100), (2, replace(V100, **change))):
        cell = replace(lab_cell(gpus, 32), workload=workload)
        builder.with_record(lab_record(cell, 20.0 / gpus, 0.0, facts))
    assert len(builder.collect().groups) == groups


def own_cell(sha256):
    """A single-GPU cell with code of the user; without a hash, of a version that kept none."""
    code = tuple(
        SourceFile(name=name, sha256=text)
        for name, text in (("mygpt.py", sha256), ("a.py", "a"))
    )
    workload = replace(DIGITS, model="mygpt:build", code=code if sha256 else ())
    return lab_cell(1, 32, workload=workload)


def test_changed_code_never_shares_a_table_and_is_named(builder):
    for epoch_s, sha256 in enumerate(("1" * 64, "2" * 64, None), start=10):
        builder.with_record(lab_record(own_cell(sha256), float(epoch_s)))
    report = builder.collect()
    assert len(report.groups) == 3
    recorded, versions = (line.split(": ")[1] for line in report.differences)
    assert recorded == "code not recorded | recorded | recorded"
    not_recorded, *hashes = versions.split(" | ")
    assert (not_recorded, sorted(hashes)) == ("not recorded", ["1111111", "2222222"])
    assert report.groups[1].differences.endswith(f"mygpt.py {hashes[0]}")
