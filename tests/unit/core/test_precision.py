"""The number format of a cell in words, and the variables of the environment that are compared."""

import msgspec
import pytest

from hpml_jobs.core.gpus import Card
from hpml_jobs.core.strategies import Device
from hpml_jobs.results.conditions import measured_conditions, precision_of
from tests.unit.builders import a_cell, a_record
from tests.unit.check_cases import FACTS, clean_record, imported_record, samples_at

replace = msgspec.structs.replace


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        ("tf32 (convolutions)", {"compute_capability": "8.0"}),
        ("tf32", {"compute_capability": "9.0", "tf32_matmul": True}),
        ("fp32", {"compute_capability": "8.0", "tf32_cudnn": False}),
        (
            "fp32",
            {"compute_capability": "8.0", "environment": {"NVIDIA_TF32_OVERRIDE": "0"}},
        ),
        ("tf32 (convolutions)", {}),  # an A100, by its name in a record before 0.8.0
        *(
            ("fp32", {"gpu_model": name})
            for name in ("Tesla V100-SXM2-16GB", "Quadro RTX 8000")
        ),
        ("unknown", {"gpu_model": None}),
        ("unknown", {"precision": "unknown"}),
    ],
)
def test_precision_follows_gpu_and_flags(words, facts):
    assert precision_of(clean_record(facts=replace(FACTS, **facts))) == words


def test_precision_on_cpu_is_fp32_and_imported_is_unknown():
    assert precision_of(clean_record(a_cell(batch=32, device=Device.CPU))) == "fp32"
    assert precision_of(imported_record()) == "unknown"


def conditions_of(cards=(), **facts):
    record = a_record(a_cell(gpus=2), facts=replace(FACTS, **facts))
    ranks = [
        replace(rank, cards=cards[n : n + 1]) for n, rank in enumerate(record.ranks)
    ]
    return dict(measured_conditions(replace(record, ranks=tuple(ranks))))


def test_limits_and_clocks_of_gpus_are_conditions():
    idle = Card(
        uuid="a",
        power_limit_w=400.2,
        memory_clock_mhz=405,
        samples=samples_at(1400, "x"),
    )
    capped = Card(uuid="b", power_limit_w=300.0, memory_clock_mhz=1215)
    conditions = conditions_of((idle, capped))
    assert (conditions["power limit"], conditions["memory clock"]) == (
        "300 + 400 W",
        "1215 MHz",
    )
    assert conditions_of()["power limit"] == "none"


def test_variables_that_change_numbers_are_conditions():
    environment = {
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }
    nccl = {"NCCL_DEBUG": "INFO", "NCCL_P2P_DISABLE": "1"}
    conditions = conditions_of(environment=environment, nccl_environment=nccl)
    assert (
        conditions["environment"]
        == "CUDA_DEVICE_MAX_CONNECTIONS=1 NCCL_DEBUG=INFO NCCL_P2P_DISABLE=1"
    )
    assert conditions_of()["environment"] == "none"
