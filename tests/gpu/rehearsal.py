"""Stand-ins for CUDA, with which every part runs on the CPU; the figures mean nothing."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import torch

from hpml_jobs.core.strategies import Device
from hpml_jobs.core.workload import Workload
from tests.gpu.bench import Bench, Command, run_command
from tests.gpu.sizes import Sizes

SMALL = Sizes(
    workload=Workload(
        name="digits_cnn", model="digits_cnn", data="synthetic", images=64, lr=0.01
    ),
    transformer=Workload(
        name="gpt_nano",
        model="gpt",
        data="tokens",
        images=16,
        optimizer="adamw",
        layers=2,
        heads=2,
        width=16,
        context=8,
        vocab=64,
    ),
    batch=4,
    iterations=12,
    stamps=50,
    late_s=0.005,
    probe_s=0.2,
    cell_epoch_images=2_048,
    rounds=2,
    pairs=1,
    launched_images=8,
    launched_workers=0,
    launched_model="resnet18",
    ladder_batch=256,
)

CYCLES_PER_S = 1e9


class HostEvent:
    """A CUDA event on the host's clock: all work is done when it is queued."""

    def __init__(self, enable_timing: bool = False) -> None:
        assert enable_timing, "an event without timing cannot be read"
        self._at_s: float | None = None

    def record(self, _stream: object = None) -> None:
        self._at_s = time.perf_counter()

    def wait(self, _stream: object = None) -> None:
        assert self._at_s is not None

    def synchronize(self) -> None:
        assert self._at_s is not None

    def query(self) -> bool:
        return False  # a device would still be at the work queued before it

    def elapsed_time(self, other: "HostEvent") -> float:
        assert self._at_s is not None, "an event was read before it was recorded"
        assert other._at_s is not None, "an event was read before it was recorded"
        return 1e3 * (other._at_s - self._at_s)


class HostStream:
    """A CUDA stream whose work is done when it is queued."""

    def __init__(self, *_arguments: object, **_options: object) -> None:
        """Take a stream's arguments."""

    def wait_stream(self, _other: object) -> None:
        """Return at once."""

    def wait_event(self, _event: object) -> None:
        """Return at once."""


def host_sleep(cycles: int) -> None:
    """Take as long as a kernel of these cycles would at 1 GHz."""
    time.sleep(cycles / CYCLES_PER_S)


@contextlib.contextmanager
def rehearsal(folder: Path, command: Command = run_command) -> Iterator[Bench]:
    """Put the stand-ins in place; the bench is on the CPU, and small."""
    from hpml_jobs.worker import process_group  # noqa: PLC0415
    from hpml_jobs.worker.instruments import facts  # noqa: PLC0415
    from hpml_jobs.worker.instruments.timing import DeviceClock  # noqa: PLC0415

    bench = Bench(folder, Device.CPU, SMALL, command)
    with contextlib.ExitStack() as stack:
        for name, value in (
            ("Event", HostEvent),
            ("Stream", HostStream),
            ("current_stream", HostStream),
            ("stream", lambda _stream: contextlib.nullcontext()),
            ("synchronize", lambda _device: None),
            ("_sleep", host_sleep),
        ):
            stack.enter_context(mock.patch.object(torch.cuda, name, value))
        stack.enter_context(
            mock.patch.object(facts, "device_uuids", lambda _devices: ("GPU-0",))
        )
        clock = lambda _: DeviceClock((torch.device("cuda", 0),))  # noqa: E731
        stack.enter_context(mock.patch.object(process_group, "clock_for", clock))
        yield bench
