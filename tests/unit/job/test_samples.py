"""The readings of GPUs by the job's wrapper: which of them belong to the timed epoch."""

import sys
import threading
import time

import msgspec
import pytest

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.gpus import Card, CardSamples
from hpml_jobs.core.validation import decode
from hpml_jobs.job import card_samples
from hpml_jobs.job.card_samples import (
    CardSample,
    CardSampler,
    NodeSamples,
    add_samples,
    summarize,
    write_samples,
)
from hpml_jobs.job.run import attempt_cell
from hpml_jobs.study.cell_folder import AttemptFolder
from hpml_jobs.study.files import encode
from tests.patience import PATIENCE_S
from tests.unit.builders import a_cell, a_record
from tests.unit.fake_nvml import FakeGpu, FakeNvml
from tests.unit.job.test_job import planned_cell, replace_workers


def sample(at_s, **changes):
    values = {"sm_clock_mhz": 1400, "memory_clock_mhz": 1200, "power_w": 300.0}
    return CardSample(
        **({"at_s": at_s, "temperature_c": 60, "reasons": 0, **values} | changes)
    )


def test_summary_has_spread_and_share_of_reasons():
    samples = [
        sample(1.0, sm_clock_mhz=1000, reasons=0x4),
        sample(
            2.0, power_w=600.0, reasons=0x24, temperature_c=80, utilization_percent=30
        ),
        sample(3.0, utilization_percent=90),
        sample(4.0),
    ]
    assert summarize(samples) == CardSamples(
        count=4,
        sm_clock_mhz=(1000, 1400, 1400),
        memory_clock_mhz=(1200, 1200, 1200),
        power_w=(300.0, 375.0, 600.0),
        temperature_c=80,
        throttle_reasons={"sw_power_cap": 0.5, "sw_thermal_slowdown": 0.25},
        utilization_percent=60.0,
    )
    assert summarize([]) is None


@pytest.fixture
def attempt(tmp_path):
    """An attempt with the record of two ranks whose timed epochs start at 100 s and 500 s."""
    of = a_cell(gpus=2, nodes=2)
    record = a_record(of)
    ranks = []
    for rank, started_s in zip(record.ranks, (100.0, 500.0), strict=True):
        epochs = [
            msgspec.structs.replace(
                epoch, started_s=started_s if epoch.role == "timed" else None
            )
            for epoch in rank.epochs
        ]
        card = Card(uuid=f"GPU-{rank.rank}")
        ranks.append(msgspec.structs.replace(rank, epochs=tuple(epochs), cards=(card,)))
    paths = AttemptFolder(tmp_path)
    paths.record.write_bytes(
        encode(msgspec.structs.replace(record, ranks=tuple(ranks)))
    )
    return paths


def test_readings_inside_of_the_timed_epoch_count(attempt):
    times = {"GPU-0": (99.0, 101.0, 107.0, 109.0), "GPU-1": (101.0, 501.0)}
    by_uuid = {uuid: tuple(map(sample, at)) for uuid, at in times.items()}
    write_samples(attempt, 1, NodeSamples(by_uuid={"GPU-1": by_uuid.pop("GPU-1")}))
    add_samples(attempt, 2, NodeSamples(by_uuid=by_uuid))
    ranks = decode(attempt.record.read_bytes(), "record").ranks
    assert [rank.cards[0].samples.count for rank in ranks] == [2, 1]


class StopAfter(threading.Event):
    """An event that is set after so many waits."""

    def __init__(self, waits):
        super().__init__()
        self.waits = waits

    def wait(self, timeout=None):
        self.waits -= 1
        return self.waits < 0


def samples_after(waits, gpus):
    sampler = CardSampler(gpus)
    sampler._stop = StopAfter(waits)
    sampler.start()
    if gpus:
        sampler._thread.join(600)
    return sampler.stop().by_uuid


def test_gpu_that_is_lost_keeps_its_readings(monkeypatch):
    lost, whole = FakeGpu(uuid="GPU-0", power_mw=None), FakeGpu(uuid="GPU-1")
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(lost, whole))
    by_uuid = samples_after(3, gpus=2)
    assert {uuid: len(samples) for uuid, samples in by_uuid.items()} == {
        "GPU-0": 0,
        "GPU-1": 3,
    }
    assert (by_uuid["GPU-1"][0].power_w, by_uuid["GPU-1"][0].utilization_percent) == (
        650.0,
        97,
    )
    assert lost.calls.count("nvmlDeviceGetPowerUsage") == 1  # not asked again


A100, H100 = FakeGpu.name, "NVIDIA H100 PCIe"


@pytest.mark.parametrize(
    ("visible", "names", "read"),
    [
        ("2,3", [A100] * 4, ["GPU-2", "GPU-3"]),
        (None, [A100, H100], ["GPU-0", "GPU-1"]),
        (None, [A100, H100, A100], ["GPU-0", "GPU-1", "GPU-2"]),
    ],
)
def test_gpus_of_other_jobs_are_not_asked(monkeypatch, visible, names, read):
    gpus = [
        FakeGpu(uuid=f"GPU-{number}", name=name) for number, name in enumerate(names)
    ]
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(*gpus))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [*samples_after(1, gpus=2)] == read
    asked = [gpu.uuid for gpu in gpus if "nvmlDeviceGetPowerUsage" in gpu.calls]
    assert asked == read


def test_record_has_samples_of_gpus_while_the_workers_ran(
    working_folder, tmp_path, monkeypatch
):
    for name, value in (
        ("ARRAY_JOB_ID", "101"),
        ("ARRAY_TASK_ID", "0"),
        ("JOB_ID", "105"),
    ):
        monkeypatch.setenv(f"SLURM_{name}", value)
    cell_folder = planned_cell(working_folder, a_cell())
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(FakeGpu(uuid="GPU-2")))
    monkeypatch.setattr(card_samples, "INTERVAL_S", 0.02)
    record = a_record(cell_folder.read().cell)
    ranks = []
    for rank in record.ranks:
        window = {"started_s": time.monotonic(), "epoch_s": PATIENCE_S}
        timed = msgspec.structs.replace(rank.timed, **window)
        epochs = (rank.epochs[0], timed, *rank.epochs[2:])
        card = Card(uuid=f"GPU-{rank.rank}")
        ranks.append(msgspec.structs.replace(rank, epochs=epochs, cards=(card,)))
    (tmp_path / "left").write_bytes(
        encode(msgspec.structs.replace(record, ranks=tuple(ranks)))
    )
    replace_workers(
        monkeypatch,
        "import sys, shutil, time; root, attempt = sys.argv[1:]; time.sleep(0.3)\n"
        f"shutil.copy({str(tmp_path / 'left')!r}, f'{{root}}/attempts/{{attempt}}/record.json')",
    )
    assert attempt_cell(cell_folder).outcome is Outcome.OK
    samples = [rank.cards[0].samples for rank in cell_folder.read_record().ranks]
    assert [sample is not None for sample in samples] == [False, False, True, False]
    assert samples[2].power_w == (650.0, 650.0, 650.0)
    assert samples[2].throttle_reasons == {"sw_power_cap": 1.0}
