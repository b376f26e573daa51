"""Images/s of a bare loop on data in the device's memory, by precision, format and compilation."""

from collections.abc import Iterator

from hpml_jobs.core.training_path import Precision
from tests.gpu.bench import Bench
from tests.gpu.benchmark_runs import run_benchmark
from tests.gpu.catalog import CEILING_BATCHES, CEILING_MODES
from tests.gpu.figures import Figure, left_out


def measure(bench: Bench) -> Iterator[Figure]:
    """Run tests/benchmarks/ceilings.py for each mode."""
    for mode in CEILING_MODES:
        if reason := bench.why_not(Precision(mode.split()[0])):
            yield from left_out(
                (f"{mode} {batch}" for batch in CEILING_BATCHES), reason
            )
            continue
        yield from run_benchmark(
            bench,
            "ceilings",
            *("--batches", *CEILING_BATCHES, "--modes", mode),
            *(
                "--model",
                bench.sizes.workload.model,
                "--iterations",
                bench.sizes.iterations,
            ),
            limit_s=120,
        )
