"""The state of GPUs by a fake NVML: every value for itself, and why one is missing."""

import csv
import os
from pathlib import Path

import pytest

from hpml_jobs.core.gpus import (
    Card,
    lane_fault,
    link_gb_per_s,
    link_text,
    memory_fault,
    slowing_reasons,
)
from hpml_jobs.results.gpus import gpu_key, peaks
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
        ((LEFT, RIGHT), (1,), range(16), 6, RIGHT),
        ((LEFT, RIGHT), (1,), range(4, 12), 2, range(8, 12)),
        ((LEFT, RIGHT), (1,), range(4, 12), 3, None),  # one CPU too few
        ((LEFT, RIGHT), (1,), LEFT, 0, None),
        ((LEFT, LEFT), (1,), range(16), 2, LEFT),
        ((LEFT, LEFT), (1,), range(16), 3, None),  # the ranks of both GPUs have these 8
        ((LEFT, LEFT), (0, 1), range(16), 6, LEFT),  # dp: one process
        ((LEFT, RIGHT), (0, 1), range(16), 8, range(16)),
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
        ([card("3B", ("switch",) * 18, 7), card("5E", ("switch",) * 18, 7)], 900.0),
        # C is not the cell's
        (
            [card("3B", (B, B, C), 2), card("5E", (A, A), 2)],
            50.0,
        ),
        ([card("3B", (B,)), card("5E", (A,)), card("D8")], None),  # C by PCIe only
        ([card("3B"), card("5E", pcie=(3, 16))], 15.76),
        ([card("3B", (C,)), card("5E")], 31.504),
        ([card("3B"), card("5E", pcie=(None, None))], None),
        ([card("3B", ("switch",))], None),
        ([card("3B", None), card("5E", None)], None),
    ],
)
def test_link_speed_is_of_nvlink_or_pcie(cards, gb_per_s):
    assert link_gb_per_s(cards) == (gb_per_s and pytest.approx(gb_per_s))


def test_links_are_shown_in_words():
    assert link_text(card("3B", ("switch",) * 12)) == "NVLink 12 x 25 GB/s"
    (read_card,) = read(FakeGpu(links=("switch",), link_version=99)).state
    assert link_text(read_card) == "NVLink 1, PCIe 4 x16"
    assert link_text(Card(uuid="GPU-0")) == ""


RECORDED = Path(__file__).parents[2] / "data" / "recorded" / "nvidia-smi.csv"

PCIE = ("gen.gpucurrent", "width.current", "gen.gpumax", "width.max")


def numbers(said, *columns):
    """Return nvidia-smi's numbers without their units; None if the GPU has not one of them."""
    words = [said[column].split()[0] for column in columns]
    return None if "[N/A]" in words else tuple(map(float, words))


def recorded_gpu(said):
    """Return a GPU that tells NVML what a real one told nvidia-smi."""
    sm_mhz, max_sm_mhz = numbers(said, "clocks.current.sm", "clocks.max.sm")
    power_w, limit_w = numbers(said, "power.draw", "enforced.power.limit")
    rows = numbers(said, "remapped_rows.correctable", "remapped_rows.uncorrectable")
    kinds = ("corrected", "uncorrected")
    return FakeGpu(
        sm_mhz=sm_mhz,
        max_sm_mhz=max_sm_mhz,
        power_mw=1000 * power_w,
        power_limit_mw=1000 * limit_w,
        reasons=int(said["clocks_event_reasons.active"], 16),
        pids=(os.getpid(),),
        pcie=numbers(said, *(f"pcie.link.{part}" for part in PCIE)),
        links=("switch",) * int(said["nvlinks"]),
        ecc=numbers(said, *(f"ecc.errors.{kind}.volatile.total" for kind in kinds)),
        remapped=rows and (*rows, said["remapped_rows.pending"] == "Yes", 0),
    )


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(row, id=f"{row['capture']} {row['state']}")
        for row in csv.DictReader(RECORDED.read_text().splitlines())
    ],
)
def test_card_equals_what_nvidia_smi_said(said):
    """Six real GPUs, idle and under load, none of them with a fault; one is divided by MIG."""
    reader = read(gpu := recorded_gpu(said))
    (card,) = reader.state
    active = {
        column.partition(".")[2] for column, word in said.items() if word == "Active"
    }
    assert set(card.throttle_reasons) == active
    assert (slowing_reasons(card), lane_fault(card), memory_fault(card)) == ([], "", "")
    assert f"{card.power_w:.2f} W" == said["power.draw"]
    assert len(card.nvlink_to) == int(said["nvlinks"])
    unknown = {"ECC errors": gpu.ecc, "remapped rows": gpu.remapped}
    assert {name for name in unknown if name in " ".join(reader.missing)} == {
        name for name, value in unknown.items() if value is None
    }
    # their peaks are not
    assert gpu_key(said["name"]) in peaks() or said["name"].endswith("SUPER")
