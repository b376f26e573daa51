"""The microbenchmark on a scripted device: launches are hidden, first uses are not judged."""

import pytest
import torch
import torch.distributed as dist

from hpml_jobs.core.measurements import (
    SWEPT,
    CollectiveKind,
    Communication,
    Message,
    Purpose,
)
from hpml_jobs.worker import microbenchmark
from hpml_jobs.worker.microbenchmark import (
    collective_times,
    sizes_sent,
)
from tests.unit.worker.conftest import fake_ranks

CPU = torch.device("cpu")
ALL_REDUCE = CollectiveKind.ALL_REDUCE
KERNEL_S = 12e-6


class ScriptedDevice:
    """A device with a queue, its clock, and a host that takes `launch_s` for each call.

    All times are virtual. The first collective of a size takes `first_s` longer. Reading a stamp
    before the host has waited for the device is an error.
    """

    def __init__(self, launch_s, first_s=0.0):
        self.launch_s, self.first_s = launch_s, first_s
        self.host_s = self.device_s = 0.0
        self.connected = set()

    def clock(self, stamps):
        assert stamps == 2
        return self

    def launch(self, seconds):
        self.host_s += self.launch_s
        self.device_s = max(self.device_s, self.host_s) + seconds

    def collective(self, tensor, *_):
        is_first = tensor.numel() not in self.connected
        self.connected.add(tensor.numel())
        self.launch(KERNEL_S + (self.first_s if is_first else 0.0))

    def prepare(self, stamps):
        assert stamps == 2

    def synchronize(self):
        self.host_s = max(self.host_s, self.device_s)

    def occupy(self, seconds):
        self.launch(seconds)
        return True

    def stamp(self):
        return max(self.host_s, self.device_s)

    def is_passed(self, stamp):
        return stamp <= self.host_s

    def seconds(self, first, second):
        assert self.host_s >= self.device_s, (
            "a stamp was read before the device was synchronized"
        )
        return second - first


@pytest.fixture(scope="module")
def eight_ranks():
    """Rank 0 of 8, whose collectives do nothing."""
    with fake_ranks(8):
        yield


@pytest.fixture
def measure(eight_ranks, monkeypatch):
    def run(device, sizes=(1024, 2048), budget_s=5.0):
        monkeypatch.setattr(dist, "all_reduce", device.collective)
        return collective_times(
            (CPU,), {ALL_REDUCE: []}, budget_s, sizes, clock_of=device.clock
        )

    return run


def test_launch_is_not_in_the_time_of_a_collective(measure):
    """A launch of 40 us would make a collective of 12 us 4 times too slow."""
    for point in measure(ScriptedDevice(launch_s=40e-6)).points:
        assert (point.median_s, point.max_s) == (
            pytest.approx(KERNEL_S),
            pytest.approx(KERNEL_S),
        )
        assert point.trials == 20


def test_slow_host_gets_more_work_ahead(measure):
    """At first a launch of 3 ms is late; soon the work ahead is long enough."""
    small, large = measure(ScriptedDevice(launch_s=3e-3)).points
    assert small.max_s == pytest.approx(KERNEL_S)
    assert (small.trials, large.trials) == (20, 20)


def test_launch_that_is_always_late_counts(measure):
    (point,) = measure(
        ScriptedDevice(launch_s=0.1), sizes=(1024,), budget_s=50.0
    ).points
    assert point.median_s == pytest.approx(0.1, rel=1e-3)
    assert point.trials == 20


def test_first_use_of_a_size_does_not_end_the_sizes(measure):
    """NCCL connects an algorithm in 0.1 to 1 s at its first use."""
    benchmark = measure(
        ScriptedDevice(launch_s=40e-6, first_s=1.0), sizes=(1024, 2048, 4096)
    )
    assert [point.bytes for point in benchmark.points] == [1024, 2048, 4096]
    assert max(point.max_s for point in benchmark.points) == pytest.approx(KERNEL_S)


def test_every_collective_is_measured_within_any_budget(eight_ranks):
    sent = {
        CollectiveKind.ALL_GATHER: [512, 2048],
        CollectiveKind.REDUCE_SCATTER: [4096],
    }
    benchmark = collective_times((CPU,), sent, 1e-9, sizes=())
    assert [(point.kind, point.bytes) for point in benchmark.points] == [
        (CollectiveKind.ALL_GATHER, 512),
        (CollectiveKind.REDUCE_SCATTER, 4096),
    ]


def test_messages_have_the_bytes_of_the_whole_tensor(eight_ranks):
    sizes = {}
    for kind in SWEPT:
        call = microbenchmark.prepare(kind, 1000, CPU)
        sizes[kind.value] = (call.inputs.nbytes, call.output.nbytes)
    assert sizes == {
        "all_reduce": (1000, 1000),
        "all_gather": (128, 1024),  # whole elements on each of 8 ranks
        "reduce_scatter": (1024, 128),
        "broadcast": (1000, 1000),
    }


def message(kind, purpose, size):
    return Message(
        kind=kind,
        purpose=purpose,
        dtype="float32",
        elements=size,
        bytes=size,
        count=1,
        busy_s=1.0,
    )


def test_collectives_of_gradients_and_parameters_are_measured():
    sent = Communication(
        total_s=1.0,
        gradients_s=1.0,
        messages=(
            message(CollectiveKind.REDUCE_SCATTER, Purpose.GRADIENTS, 800),
            message(CollectiveKind.ALL_GATHER, Purpose.PARAMETERS, 1600),
            message(CollectiveKind.BROADCAST, Purpose.BUFFERS, 16),
        ),
    )
    assert sizes_sent(sent) == {
        CollectiveKind.REDUCE_SCATTER: {800},
        CollectiveKind.ALL_GATHER: {1600},
    }
    assert sent.gradient_kind is CollectiveKind.REDUCE_SCATTER
    by_root = (message(CollectiveKind.GATHER, Purpose.GRADIENTS, 8),)
    assert sizes_sent(
        Communication(total_s=1.0, gradients_s=1.0, messages=by_root)
    ) == {ALL_REDUCE: set()}
    assert sizes_sent(None) == {ALL_REDUCE: set()}
