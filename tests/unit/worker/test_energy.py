"""The energy of GPUs by a fake NVML: differences of counters, and reasons where there are none."""

from types import SimpleNamespace

import pytest
import torch

from hpml_jobs.worker import epochs
from hpml_jobs.worker.instruments.cards import EnergyMeter
from hpml_jobs.worker.instruments.recorder import MemoryMeter

UUIDS = ("GPU-a", "GPU-b")


class NVMLError(Exception):
    pass


class FakeNvml:
    """Counters of two GPUs; every reading adds `step_mj`."""

    NVMLError = NVMLError

    def __init__(self, step_mj=250_000, mig=None, fault=None):
        self.step_mj, self.mig, self.fault = step_mj, mig, fault
        self.counters = {"GPU-a": 5_000_000_000_000, "GPU-b": 0}
        self.initialized = 0

    def nvmlInit(self):  # noqa: N802 -- NVML's names
        self.initialized += 1

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        if uuid not in self.counters:
            raise NVMLError("Not Found")
        return uuid

    def nvmlDeviceGetMigMode(self, handle):  # noqa: N802
        if self.mig is None:
            raise NVMLError("Not Supported")
        return self.mig, self.mig

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):  # noqa: N802
        if self.fault:
            raise self.fault
        self.counters[handle] += self.step_mj
        return self.counters[handle]


def test_energy_is_the_difference_of_the_counters():
    nvml = FakeNvml()
    meter = EnergyMeter(UUIDS, nvml)
    energy = meter.since(meter.read())
    assert [(gpu.uuid, gpu.joules) for gpu in energy] == [
        ("GPU-a", 250.0),
        ("GPU-b", 250.0),
    ]
    assert all(gpu.window_s > 0 for gpu in energy)
    assert (nvml.initialized, meter.missing) == (1, [])


@pytest.mark.parametrize(
    ("uuids", "nvml", "reason"),
    [
        (UUIDS, FakeNvml(fault=NVMLError("Not Supported")), "energy: Not Supported"),
        (UUIDS, FakeNvml(mig=1), "energy: GPU-a is shared by MIG"),
        (("GPU-a", "GPU-c"), FakeNvml(), "energy: Not Found"),
        (UUIDS, FakeNvml(step_mj=0), "energy: GPU-a: the counter did not advance"),
    ],
)
def test_gpu_without_counter_has_no_energy_but_a_reason(uuids, nvml, reason):
    meter = EnergyMeter(uuids, nvml)
    assert meter.since(meter.read()) is None
    assert meter.since(meter.read()) is None
    assert len(meter.missing) == 1
    assert meter.missing[0].startswith(reason)


def test_gpu_that_is_lost_in_an_epoch_has_no_energy():
    nvml = FakeNvml()
    meter = EnergyMeter(UUIDS, nvml)
    before = meter.read()
    nvml.fault = NVMLError("GPU is lost")
    assert meter.since(before) is None
    assert meter.missing == ["energy: GPU is lost"]


def test_cpu_has_no_energy_and_nothing_is_missing():
    meter = EnergyMeter(())
    assert meter.since(meter.read()) is None
    assert meter.missing == []


class Log(list):
    """The order of what happens at an epoch's borders."""

    def read(self):
        self.append("read")

    def since(self, before):
        self.append("read")


def test_counters_are_read_outside_of_the_epoch(monkeypatch):
    log = Log()

    def run(*_):
        log.append("epoch")
        return epochs.RawEpoch(None, [], torch.zeros(0), None, [], [], "")

    monkeypatch.setattr(epochs, "_run", run)
    strategy = SimpleNamespace(barrier=lambda: log.append("barrier"))
    memory = MemoryMeter(())
    training = SimpleNamespace(
        strategy=strategy,
        energy=log,
        scheduling=log,
        memory=memory,
    )
    epochs._run_accounted(training, [], 0, None)
    assert log == ["barrier", "read", "read", "epoch", "read", "read"]
