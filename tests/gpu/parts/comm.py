"""Kernels of known length in place of all-reduces: what total, served and exposed come to."""

from collections.abc import Callable, Iterator
from statistics import median
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from hpml_jobs.core.formulas import union_s
from hpml_jobs.core.measurements import CollectiveKind, Purpose
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.worker.epochs import EpochResult, instrumented_epoch
from hpml_jobs.worker.probes import TRACED, measured_window, start_profiler
from hpml_jobs.worker.training import Training
from tests.gpu.bench import Bench
from tests.gpu.catalog import SPIN_MS
from tests.gpu.figures import Figure, left_out
from tests.unit.worker.traces import read_trace

CYCLES = 10_000_000
"""Cycles that calibrate the kernel."""

WARM_UP = 60
"""Calibrations before the one that counts: an idle card has a lower clock, in which a kernel of so
many cycles takes longer (1,755 of 1,980 MHz on an H100)."""

KERNEL = """\
extern "C" __global__ void ncclDevKernel_AllReduce_StandIn(int cycles) {
    long long begin = clock64();
    while (clock64() - begin < cycles) {}
}
"""
"""The profiler counts a kernel with nccl in its name as communication."""

Spin = Callable[[int], object]


def measure(bench: Bench) -> Iterator[Figure]:
    """Replace the all-reduce of ddp by stand-ins of several lengths, one epoch for each."""
    iterations = bench.sizes.iterations
    cell = bench.cell(
        strategy=Strategy.DDP,
        workload=bench.workload_of(iterations * bench.sizes.batch),
    )
    training = bench.training(cell, bench.resident_batches(iterations))
    spin, is_named = _kernel()
    per_ms = _cycles_per_ms(bench, spin)
    for milliseconds in SPIN_MS:
        with mock.patch.object(
            dist, "all_reduce", _stand_in(bench, spin, per_ms, milliseconds)
        ):
            training.rewrap(instrumented=True)
            yield from _figures(instrumented_epoch(training, 1), milliseconds)
    with mock.patch.object(
        dist, "all_reduce", _stand_in(bench, spin, per_ms, SPIN_MS[1])
    ):
        if is_named:
            yield _beside_profiler(training)
        else:
            yield from left_out(
                ["profiler"], "this torch cannot compile a kernel with NCCL's name"
            )


def _figures(result: EpochResult, milliseconds: float) -> Iterator[Figure]:
    """Compare one epoch with the stand-ins' length."""
    phases, ledger = result.phases, result.ledger
    assert phases is not None
    assert ledger is not None
    is_gradient = [entry.purpose is Purpose.GRADIENTS for entry in ledger.collectives]
    length_s = milliseconds / 1e3
    served_s = phases.served_s[is_gradient]
    count = int(sum(is_gradient))
    note = f"{count / result.epoch.iterations:g} messages per iteration"
    exposed_s = phases.phases.comm_exposed_s / result.epoch.iterations
    total_s = phases.communication.gradients_s
    name = f"{milliseconds:g}"
    yield Figure(
        key=f"served_{name}", value=median(served_s.tolist()) / length_s, note=note
    )
    yield Figure(key=f"total_{name}", value=total_s / (count * length_s))
    yield Figure(key=f"exposed_{name}", value=exposed_s / length_s)


def _beside_profiler(training: Training) -> Figure:
    """Compare the kernels' time; not that of DDP's buffers, for which one rank has no kernel."""
    devices = training.strategy.devices
    profiler = start_profiler(devices[0])
    result = instrumented_epoch(
        training, 2, iterations=TRACED, span=measured_window(devices)
    )
    profiler.stop()
    kind, ledger = CollectiveKind.ALL_REDUCE, result.ledger
    assert ledger is not None
    kernels = [e for e in read_trace(profiler, 1) if e.on_device and e.kind is kind]
    if not kernels:
        return Figure(key="profiler", value=None, note="the trace has no such kernel")
    seconds, first = ledger.clock.seconds, ledger.collectives[0].start
    ours_s = union_s(
        (seconds(first, entry.start), seconds(first, entry.end))
        for entry in ledger.collectives
        if entry.kind is kind
    )
    kernels_s = union_s((event.start_s, event.end_s) for event in kernels)
    return Figure(key="profiler", value=kernels_s / ours_s)


def _kernel() -> tuple[Spin, bool]:
    """Return a kernel that takes some cycles, and whether it has the name of one of NCCL's."""
    try:
        kernel = torch.cuda._compile_kernel(KERNEL, "ncclDevKernel_AllReduce_StandIn")
    # an older torch, or no compiler: torch has one without such a name
    except Exception:
        return torch.cuda._sleep, False
    return lambda cycles: kernel((1, 1, 1), (1, 1, 1), (cycles,)), True


def _cycles_per_ms(bench: Bench, spin: Spin) -> float:
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(WARM_UP):
        spin(CYCLES)
    bench.synchronize()
    first.record()
    spin(CYCLES)
    last.record()
    bench.synchronize()
    return CYCLES / first.elapsed_time(last)


def _stand_in(
    bench: Bench, spin: Spin, per_ms: float, milliseconds: float
) -> Callable[..., Any]:
    """Return an all-reduce whose asynchronous form is a kernel of this length on a side stream."""
    side, real = torch.cuda.Stream(), dist.all_reduce
    devices = [bench.torch_device] if bench.device is Device.CUDA else []

    class Work:
        """What an asynchronous all-reduce returns."""

        def __init__(self, tensor: torch.Tensor) -> None:
            side.wait_stream(torch.cuda.current_stream())
            self._future: Any = torch.futures.Future(devices=devices)
            with torch.cuda.stream(side):
                spin(int(per_ms * milliseconds))
                self._future.set_result([tensor])

        def get_future(self) -> Any:
            return self._future

        def wait(self) -> None:
            torch.cuda.current_stream().wait_stream(side)

    def all_reduce(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        return (
            Work(tensor)
            if options.get("async_op")
            else real(tensor, *arguments, **options)
        )

    return all_reduce
