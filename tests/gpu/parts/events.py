"""CUDA events: their cost, a stall of known length, the device's clock against the host's."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from hpml_jobs.core.measurements import Role
from hpml_jobs.core.strategies import Device
from hpml_jobs.worker.epochs import EpochResult, instrumented_epoch, train_epoch
from hpml_jobs.worker.process_group import ParallelStrategy
from tests.gpu.bench import Bench, ResidentBatches
from tests.gpu.figures import Figure, left_out

KERNELS = 20
"""Kernels before a stamp."""

LATE_EVERY = 10
"""One batch of so many comes late."""


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure single events, then epochs with and without late batches."""
    yield from _costs(bench)
    yield from _stalls(bench)


def _costs(bench: Bench) -> Iterator[Figure]:
    number = bench.sizes.stamps
    events = [torch.cuda.Event(enable_timing=True) for _ in range(number)]

    def record_all() -> None:
        for event in events:
            event.record()

    for key in ("first_us", "again_us"):
        bench.synchronize()
        begin = time.perf_counter()
        record_all()
        yield Figure(key=key, value=1e6 * (time.perf_counter() - begin) / number)
    bench.synchronize()
    begin = time.perf_counter()
    for event in events[1:]:
        events[0].elapsed_time(event)
    read_s = time.perf_counter() - begin
    strategy = bench.training(_small(bench), bench.resident_batches(2)).strategy
    clock = strategy.clock(number)
    bench.synchronize()
    begin = time.perf_counter()
    for _ in range(number):
        clock.stamp()
    yield Figure(key="stamp_us", value=1e6 * (time.perf_counter() - begin) / number)
    bench.synchronize()
    yield Figure(key="read_us", value=1e6 * read_s / number)
    yield from _behind_work(bench, strategy)


def _behind_work(bench: Bench, strategy: ParallelStrategy) -> Iterator[Figure]:
    """Time stamps of which each stands behind work that the host has just queued."""
    number = bench.sizes.stamps
    values = torch.zeros(KERNELS, device=bench.torch_device)

    def launch() -> None:
        for _ in range(KERNELS):
            values.add_(1)

    def stamp_us(queue_work: Callable[[], object]) -> float:
        clock, stamps_s = strategy.clock(number), 0.0
        bench.synchronize()
        for _ in range(number):
            queue_work()
            begin = time.perf_counter()
            clock.stamp()
            stamps_s += time.perf_counter() - begin
        bench.synchronize()
        return 1e6 * stamps_s / number

    yield Figure(key="behind_kernels_us", value=stamp_us(launch))
    if bench.device is Device.CPU:
        yield from left_out(["behind_graph_us"], "CUDA graphs need a GPU")
        return
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    yield Figure(key="behind_graph_us", value=stamp_us(graph.replay))


def _small(bench: Bench, iterations: int = 2) -> Any:
    return bench.cell(workload=bench.workload_of(iterations * bench.sizes.batch))


def _stalls(bench: Bench) -> Iterator[Figure]:
    count, late_s = bench.sizes.iterations, bench.sizes.late_s
    slept_s: list[float] = []

    class LateBatches(ResidentBatches):
        """Batches of which one in `LATE_EVERY` comes late, once the device has no work left."""

        def __iter__(self) -> Iterator[Any]:
            for index, batch in enumerate(super().__iter__()):
                if index % LATE_EVERY == 0:
                    bench.synchronize()
                    begin = time.perf_counter()
                    time.sleep(late_s)
                    # a host may wake up late
                    slept_s.append(time.perf_counter() - begin)
                yield batch

    training = bench.training(_small(bench, count), bench.resident_batches(count))
    prompt = (train_epoch(training, 1, Role.PLAIN), instrumented_epoch(training, 2))
    training.loader = bench.resident_batches(count, LateBatches)
    for key, train, before in (
        ("stall_timed", partial(train_epoch, training, 3, Role.PLAIN), prompt[0]),
        ("stall_split", partial(instrumented_epoch, training, 4), prompt[1]),
    ):
        slept_s.clear()
        late = train()
        yield Figure(key=key, value=(_stall_s(late) - _stall_s(before)) / sum(slept_s))
    timed = prompt[0]
    device_s = float(timed.times.step_s.sum()) + timed.times.last_stall_s
    yield Figure(key="clocks", value=timed.epoch.epoch_s / device_s)


def _stall_s(result: EpochResult) -> float:
    phases = result.epoch.phases
    return phases.stall_s if phases else result.epoch.stall_s
