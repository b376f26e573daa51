"""The benchmarks with `--device cuda`: processes of their own that write their figures as JSON."""

import json
import sys
from collections.abc import Iterator

from tests.gpu.bench import ROOT, Bench
from tests.gpu.figures import Figure


class BenchmarkError(Exception):
    """A benchmark wrote no result; the message is the end of its output."""


def run_benchmark(
    bench: Bench, script: str, *options: object, limit_s: float
) -> Iterator[Figure]:
    """Run a script of tests/benchmarks/ on the bench's device and return its figures.

    Raises:
        BenchmarkError: it wrote none.
    """
    path = bench.folder / f"{script}.json"
    command = [sys.executable, str(ROOT / "tests" / "benchmarks" / f"{script}.py")]
    command += [*map(str, options), "--device", bench.device.value, "--json", str(path)]
    finished = bench.command(command, {"OMP_NUM_THREADS": "1"}, limit_s)
    if not path.exists():
        raise BenchmarkError(f"{script}.py: {finished.output.strip()[-300:]}")
    for key, entry in json.loads(path.read_text()).items():
        yield Figure(key=key, value=entry["value"], note=entry.get("note", ""))
