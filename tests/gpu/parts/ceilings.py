"""Images/s of a bare loop on data in the device's memory, by precision, format and compilation."""

from collections.abc import Iterator

from tests.gpu.bench import Bench
from tests.gpu.benchmark_runs import run_benchmark
from tests.gpu.catalog import CEILING_BATCHES, CEILING_MODES
from tests.gpu.figures import Figure


def measure(bench: Bench) -> Iterator[Figure]:
    """Run tests/benchmarks/ceilings.py for each mode."""
    for mode in CEILING_MODES:
        yield from run_benchmark(
            bench,
            "ceilings",
            *("--batches", *CEILING_BATCHES, "--modes", mode),
            *("--model", bench.sizes.workload.model, "--iterations", bench.sizes.iterations),
            limit_s=120,
        )
