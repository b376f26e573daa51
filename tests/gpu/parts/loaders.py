"""Real JPEG files by number of loader workers, and images on the device."""

from collections.abc import Iterator

from tests.gpu.bench import Bench
from tests.gpu.benchmark_runs import run_benchmark
from tests.gpu.catalog import LOADER_WORKERS
from tests.gpu.figures import Figure


def measure(bench: Bench) -> Iterator[Figure]:
    """Run tests/benchmarks/loaders.py for all numbers of workers, then for images on the device."""
    for sources in (LOADER_WORKERS, ("device",)):
        yield from run_benchmark(
            bench,
            "loaders",
            *("--workers", *sources, "--images", bench.sizes.loader_images),
            *("--model", bench.sizes.workload.model, "--batch", bench.sizes.batch),
            limit_s=300,
        )
