"""The timed epoch against a bare loop, the instrumented epoch against the timed one."""

from collections.abc import Iterator

from tests.gpu.bench import Bench
from tests.gpu.benchmark_runs import run_benchmark
from tests.gpu.catalog import OVERHEAD_BATCHES, OVERHEAD_STRATEGIES
from tests.gpu.figures import Figure


def measure(bench: Bench) -> Iterator[Figure]:
    """Run tests/benchmarks/overhead.py for each batch."""
    for batch in OVERHEAD_BATCHES:
        iterations = (
            bench.sizes.iterations if batch < 512 else bench.sizes.iterations // 2
        )
        yield from run_benchmark(
            bench,
            "overhead",
            *("--batches", batch, "--strategies", *OVERHEAD_STRATEGIES, "--ranks", 1),
            *("--models", bench.sizes.workload.model, "--rounds", bench.sizes.rounds),
            *("--iterations", iterations),
            limit_s=150,
        )
