"""A job of ddp against torchrun of a script that has none of our code."""

from collections.abc import Iterator

from tests.gpu.bench import Bench
from tests.gpu.benchmark_runs import run_benchmark
from tests.gpu.figures import Figure


def measure(bench: Bench) -> Iterator[Figure]:
    """Run tests/benchmarks/timed_epoch.py with jobs; both write the time of their second epoch."""
    yield from run_benchmark(
        bench,
        "timed_epoch",
        *("--ranks", 1, "--ddp", "--pairs", bench.sizes.pairs),
        *("--batch", bench.sizes.batch, "--limit", bench.sizes.launched_images),
        *(
            "--workers",
            bench.sizes.launched_workers,
            "--model",
            bench.sizes.launched_model,
        ),
        limit_s=350,
    )
