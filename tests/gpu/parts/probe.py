"""All-reduces of one rank, where NCCL sends nothing: the time of the launch, in or out of view."""

from collections.abc import Iterator
from statistics import median

import torch
import torch.distributed as dist

from hpml_jobs.core.measurements import CollectiveKind
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.worker.microbenchmark import collective_times
from tests.gpu.bench import Bench
from tests.gpu.figures import Figure

KIB, MIB = 2**10, 2**20
CALLS = 50
SPIN_CYCLES = 20_000_000
"""About 10 ms, in which the host queues all the calls."""


def measure(bench: Bench) -> Iterator[Figure]:
    """Time calls one by one on an idle device, behind other work, and by the microbenchmark."""
    workload = bench.workload_of(2 * bench.sizes.batch)
    cell = bench.cell(strategy=Strategy.DDP, workload=workload)
    strategy = bench.training(cell, bench.resident_batches(2)).strategy
    buffer = torch.ones(KIB // 4, device=bench.torch_device)
    dist.all_reduce(buffer)  # NCCL connects at the first use
    yield Figure(
        key="alone_us", value=median(_call_us(bench, buffer, 1) for _ in range(CALLS))
    )
    torch.cuda._sleep(SPIN_CYCLES)
    yield Figure(key="queued_us", value=_call_us(bench, buffer, CALLS, idle=False))
    kinds = {CollectiveKind.ALL_REDUCE: set[int]()}
    budget_s, sizes = bench.sizes.probe_s, (KIB, MIB)
    result = collective_times(
        strategy.devices, kinds, budget_s, sizes, clock_of=strategy.clock
    )
    points = {point.bytes: point for point in result.points} if result else {}
    for key, size in (("ours_us", KIB), ("ours_1m_us", MIB)):
        point = points.get(size)
        note = (
            f"{point.launched_late} trials launched late"
            if point
            else "not within the budget"
        )
        yield Figure(key=key, value=1e6 * point.median_s if point else None, note=note)


def _call_us(
    bench: Bench, buffer: torch.Tensor, calls: int, *, idle: bool = True
) -> float:
    """Return the microseconds per call between two events around some calls."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    if idle:
        bench.synchronize()
    first.record()
    for _ in range(calls):
        dist.all_reduce(buffer)
    last.record()
    bench.synchronize()
    return 1e3 * first.elapsed_time(last) / calls
