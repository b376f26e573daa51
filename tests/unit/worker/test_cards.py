"""The state of GPUs by a fake NVML: every value for itself, and why one is missing."""

import csv
import os
from pathlib import Path

import pytest

from hpml_jobs.core.gpus import (
    Card,
    link_gb_per_s,
    slowing_reasons,
)
from hpml_jobs.worker.instruments.cards import CardReader, bind_to_near_cpus
from tests.unit.fake_nvml import FakeGpu, FakeNvml, NVMLError


def read(*gpus, uuids=None):
    reader = CardReader(uuids or tuple(gpu.uuid for gpu in gpus), FakeNvml(*gpus))
    reader.read()
    return reader


def test_card_has_all_that_nvml_tells():
    links = ("00000000:D8:00.0", "off", "00000000:D8:00.0")
    near = (1, 70)
    gpu = FakeGpu(
        reasons=0x1400, pids=(os.getpid(), 7), links=links, ecc=(3, 1), near_cpus=near,
        remapped=(1, 2, 0, 0), bus_id=b"00000000:3B:00.0", pcie=(3, 8, 4, 16),
    )  # fmt: skip
    reader = read(gpu)
    assert reader.missing == []
    assert reader.state == (
        Card(
            uuid="GPU-0",
            sm_clock_mhz=1755,
            max_sm_clock_mhz=1980,
            temperature_c=60,
            power_w=650.0,
            throttle_reasons=("reliability", "reason_0x1000"),
            other_processes=1,
            memory_clock_mhz=3201,
            power_limit_w=700.0,
            index=0,
            bus_id="00000000:3B:00.0",
            pcie_generation=3,
            pcie_width=8,
            max_pcie_generation=4,
            max_pcie_width=16,
            nvlink_to=("00000000:D8:00.0",) * 2,
            nvlink_version=5,
            ecc_uncorrected=1,
            remapped_rows=3,
            row_remapping="done",
            near_cpus=near,
        ),
    )


def test_value_that_a_gpu_does_not_know_is_missing_alone():
    gpu = FakeGpu(power_limit_mw=None, ecc=None, remapped=None, pids=(os.getpid(),))
    reader = read(gpu)
    (card,) = reader.state
    assert (card.power_limit_w, card.ecc_uncorrected, card.row_remapping) == (
        None,
        None,
        None,
    )
    assert (card.sm_clock_mhz, card.power_w, card.other_processes) == (1755, 650.0, 0)
    reader.read()
    reason = "card GPU-0: power limit, ECC errors, remapped rows: Not Supported"
    assert reader.missing == [reason]  # once, however often it is read


@pytest.mark.parametrize("pids", [(), (7, 8)], ids=["none", "others"])
def test_processes_of_another_namespace_are_unknown(pids):
    reader = read(FakeGpu(pids=pids))
    assert reader.state[0].other_processes is None
    assert "does not list this process (another PID namespace)" in reader.missing[0]


def test_unknown_gpu_and_no_nvml_are_missing_with_reason():
    reader = read(FakeGpu(pids=(os.getpid(),)), uuids=("GPU-0", "GPU-9"))
    assert [card.uuid for card in reader.state] == ["GPU-0"]
    assert reader.missing == ["card GPU-9: Not Found"]
    broken = FakeNvml()

    def fail():
        raise NVMLError("Driver Not Loaded")

    broken.nvmlInit = fail
    reader = CardReader(("GPU-0",), broken)
    reader.read()
    assert (reader.state, reader.missing) == ((), ["cards: Driver Not Loaded"])


LEFT, RIGHT = tuple(range(8)), tuple(range(8, 16))
"""The CPUs of two NUMA nodes."""


@pytest.mark.parametrize(
    ("near", "mine", "allowed", "workers", "bound"),
    [
        ((LEFT, RIGHT), (1,), range(4, 12), 2, range(8, 12)),
        ((LEFT, RIGHT), (1,), range(4, 12), 3, None),  # one CPU too few
        ((LEFT, LEFT), (1,), range(16), 3, None),  # the ranks of both GPUs have these 8
        ((LEFT, LEFT), (0, 1), range(16), 6, LEFT),  # dp: one process
        ((None, None), (1,), range(16), 0, None),
    ],
)
def test_rank_is_bound_to_near_cpus_if_they_are_enough(
    monkeypatch, *, near, mine, allowed, workers, bound
):
    made: list[set[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*allowed})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cpus: made.append(cpus))
    gpus = [FakeGpu(uuid=f"GPU-{n}", near_cpus=cpus) for n, cpus in enumerate(near)]
    of_node = CardReader(tuple(gpu.uuid for gpu in gpus), FakeNvml(*gpus))
    bind_to_near_cpus(tuple(gpus[n].uuid for n in mine), of_node, workers)
    assert made == ([] if bound is None else [{*bound}])


def test_mig_instance_has_the_values_of_its_board():
    (card,) = read(FakeGpu(uuid="MIG-5", pids=(os.getpid(),))).state
    assert (card.mig, card.sm_clock_mhz, card.other_processes) == (True, 1755, 0)


def test_cpu_has_no_cards_and_nothing_is_missing():
    reader = CardReader(())
    reader.read()
    assert (reader.state, reader.missing) == ((), [])


def card(bus, links=(), version=5, pcie=(4, 16)):
    return Card(
        uuid=bus, bus_id=f"00000000:{bus}:00.0", nvlink_to=links, nvlink_version=version,
        max_pcie_generation=pcie[0], max_pcie_width=pcie[1],
    )  # fmt: skip


A, B, C = (f"0000:{bus}:00.0" for bus in ("3b", "5e", "d8"))


@pytest.mark.parametrize(
    ("cards", "gb_per_s"),
    [
        ([card("3B", ("switch",) * 18, 6), card("5E", ("switch",) * 18, 6)], 450.0),
        # C is not the cell's
        (
            [card("3B", (B, B, C), 2), card("5E", (A, A), 2)],
            50.0,
        ),
        ([card("3B", (B,)), card("5E", (A,)), card("D8")], None),  # C by PCIe only
        ([card("3B"), card("5E", pcie=(3, 16))], 15.76),
        ([card("3B"), card("5E", pcie=(None, None))], None),
        ([card("3B", None), card("5E", None)], None),
    ],
)
def test_link_speed_is_of_nvlink_or_pcie(cards, gb_per_s):
    assert link_gb_per_s(cards) == (gb_per_s and pytest.approx(gb_per_s))


RECORDED = Path(__file__).parents[2] / "data" / "recorded" / "nvidia-smi.csv"


@pytest.mark.parametrize("said", [*csv.DictReader(RECORDED.read_text().splitlines())])
def test_throttle_reasons_are_those_that_nvidia_smi_names(said):
    """Of six real GPUs, idle and under load; none of them was slowed."""
    (card,) = read(FakeGpu(reasons=int(said["clocks_event_reasons.active"], 16))).state
    active = {
        column.partition(".")[2] for column, word in said.items() if word == "Active"
    }
    assert {*card.throttle_reasons} == active
    assert slowing_reasons(card) == []
