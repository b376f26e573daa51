"""Seconds of CPU of collect on studies of 9, 45 and 1,005 cells, without and with its page.

    python tests/benchmarks/report_page.py [--runs 3]

The studies are hand-made records of the full protocol, 3 runs of each place, 67 in the largest
study. Seconds are those that a whole process has a CPU for, the minimum of the runs; each starts
without an earlier report.
"""

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from hpml_jobs.core.strategies import Strategy  # noqa: E402  (needs the root on the path)
from tests.unit.builders import a_cell, a_record  # noqa: E402
from tests.unit.study_builder import StudyBuilder  # noqa: E402

SIZES = (1, 2, 4)
BATCHES = {9: (32,), 45: (16, 32, 64, 128, 256), 1005: (16, 32, 64, 128, 256)}
"""Batches per GPU, by the number of cells."""


def study_of(cells: int, outputs: Path) -> StudyBuilder:
    """Write a study of so many cells: sizes x batches x repeats."""
    builder = StudyBuilder(outputs / f"cells{cells}")
    for batch in BATCHES[cells]:
        for gpus in SIZES:
            for repeat in range(cells // len(SIZES) // len(BATCHES[cells])):
                strategy = Strategy.SINGLE if gpus == 1 else Strategy.DDP
                cell = a_cell(gpus=gpus, batch=batch, repeat=repeat, strategy=strategy)
                epoch_s = (8.0 + repeat / 10) / gpus**0.8
                builder.with_record(a_record(cell, f"1{gpus}{repeat}_0.r0", epoch_s))
    return builder


def seconds_of(options: tuple[str, ...], builder: StudyBuilder, runs: int) -> float:
    """Return the least seconds of CPU of collect with options on a study without a report."""
    least = float("inf")
    outputs = str(builder.study.root.parent)
    words = ["collect", builder.study.name, "--outputs", outputs, *options]
    for _ in range(runs):
        shutil.rmtree(builder.study.report, ignore_errors=True)
        start = _cpu_s()
        subprocess.run(
            [sys.executable, "-m", "hpml_jobs", *words],
            cwd=ROOT,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        least = min(least, _cpu_s() - start)
    return least


def _cpu_s() -> float:
    """Return the seconds of CPU of all processes that were run and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    print(f"{'cells':>6}{'--json, s':>12}{'whole, s':>11}{'ratio':>7}{'page, KiB':>11}")
    with tempfile.TemporaryDirectory() as folder:
        for cells in BATCHES:
            builder = study_of(cells, Path(folder))
            json_s, whole_s = (
                seconds_of(options, builder, runs) for options in (("--json",), ())
            )
            size = (builder.study.report / "report.html").stat().st_size / 1024
            ratio = whole_s / json_s
            print(f"{cells:6}{json_s:12.2f}{whole_s:11.2f}{ratio:7.2f}{size:11.0f}")


if __name__ == "__main__":
    main()
