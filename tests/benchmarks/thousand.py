"""Scaling of submission, status and collect from 100 to 1,000 cells, on the test SLURM.

    python tests/benchmarks/thousand.py [--cells 100 1000] [--runs 3]

The cells have two numbers of processes, five batches, and as many repeats as needed. The jobs are
SLURM's and run the program's job wrapper, but each writes a hand-made valid record instead of
starting workers: no training, no torch. A row that grows faster than the number of cells has a
larger ratio than the cells. Times are of whole processes, the minimum of the runs; `status,
running` is measured once, while jobs use the machine.
"""

import argparse
import json
import os
import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from hpml_jobs.core.cell import CellFile  # noqa: E402
from hpml_jobs.study.attempt import AttemptFolder  # noqa: E402  (needs the root on the path)
from hpml_jobs.study.files import encode, write_whole  # noqa: E402
from tests.rig import Rig, missing_requirement  # noqa: E402

PROGRAM = [sys.executable, "-m", "hpml_jobs"]
CELLS_PER_REPEAT = 10
OVERRIDES = [
    *("-m", "gpus=1,2", "batch=16,32,64,128,256", "workload=digits", "cluster=rig"),
    *("--config-dir", str(ROOT / "tests" / "journeys" / "conf")),
    *(
        "cluster.isolate=off",
        "cluster.request_gpus_for_cpu=false",
        "cluster.mem_gb_per_gpu=1",
    ),
    "+cluster.sbatch.hold=true",
]


class CommandTimer:
    """Runs commands on one study, and keeps the minimum time of each in seconds."""

    def __init__(self, folder: Path, environment: dict[str, str], runs: int) -> None:
        self.folder, self.environment, self.runs = folder, environment, runs
        self.min_s: dict[str, float] = {}

    def __call__(self, label: str, *arguments: str, once: bool = False) -> str:
        """Run a command `runs` times, or once; return its last output."""
        output = ""
        for _ in range(1 if once else self.runs):
            start = time.perf_counter()
            command = [*PROGRAM, *arguments]
            process = subprocess.run(
                command,
                cwd=self.folder,
                env=self.environment,
                check=True,
                stdout=subprocess.PIPE,
            )
            elapsed_s = time.perf_counter() - start
            self.min_s[label] = min(elapsed_s, self.min_s.get(label, elapsed_s))
            output = process.stdout.decode()
        return output


def time_study(rig: Rig, folder: Path, cells: int, runs: int) -> dict[str, float]:
    """Return the seconds of each command on a study of this size, from submission to its tables."""
    python = folder / "job-python"
    real = sys.executable
    # the versions that jobs would have
    lines = [
        "#!/bin/sh",
        f'[ "$1" = -c ] && exec {real} "$@"',
    ]
    lines.append(f'exec {real} {Path(__file__).resolve()} "$@"')
    python.write_text("\n".join(lines) + "\n")
    python.chmod(0o755)
    name = f"cells{cells}"
    timer = CommandTimer(folder, rig.env | {"XDG_CONFIG_HOME": str(folder)}, runs)
    arguments = [
        *OVERRIDES,
        f"repeats={cells // CELLS_PER_REPEAT}",
        f"study={name}",
        f"cluster.python={python}",
    ]
    submission = json.loads(timer("submit", *arguments, "--json", once=True))
    timer("status, pending", "status", name)
    timer("submit again, nothing new", *arguments)
    start = time.perf_counter()
    arrays = {row["job"].split("_")[0] for row in submission["cells"]}
    rig.run("scontrol", "release", ",".join(sorted(arrays))).check_returncode()
    time.sleep(min(20, cells / 10))
    timer("status, running", "status", name, once=True)
    subprocess.run(
        [*PROGRAM, "status", name, "--watch"],
        cwd=folder,
        env=timer.environment,
        check=True,
        stdout=sys.stderr,
    )
    timer.min_s["(all jobs)"] = time.perf_counter() - start
    timer("status, finished", "status", name)
    states = json.loads(timer("status --json", "status", name, "--json"))["cells"]
    outcomes = [state["outcome"] for state in states]
    if outcomes != ["ok"] * cells:
        sys.exit(f"of {cells} cells, {outcomes.count('ok')} are ok: {set(outcomes)}")
    timer("collect", "collect", name)
    return timer.min_s


def run_as_job_python(arguments: list[str]) -> None:
    """Act as `cluster.python`: run the job wrapper, with a hand-made record instead of workers."""
    from hpml_jobs.job import run as job  # noqa: PLC0415
    from tests.unit.builders import a_record  # noqa: PLC0415

    def run_workers(
        file: CellFile, _folder: object, attempt: AttemptFolder, *_: object
    ):
        write_whole(attempt.record, encode(a_record(file.cell, attempt=attempt.id)))
        return 0, False

    job.run_workers = run_workers  # type: ignore[assignment]
    module = arguments[arguments.index("-m") + 1]
    sys.argv = [module, *arguments[arguments.index("-m") + 2 :]]
    runpy.run_module(module, run_name="__main__")


def main() -> None:
    """Run both studies, and print their times and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    if reason := missing_requirement():
        sys.exit(reason)
    with tempfile.TemporaryDirectory() as name, Rig() as rig:
        times = {
            cells: time_study(rig, Path(name), cells, options.runs)
            for cells in options.cells
        }
    few, many = min(times), max(times)
    print(
        f"{os.cpu_count()} cores; seconds of whole processes; {many} cells are {many / few:g} x"
    )
    headings = "".join(f"{f'{cells} cells':>12}" for cells in times)
    print(f"{'':30}{headings}{'ratio':>8}")
    for label in times[few]:
        columns = "".join(f"{seconds[label]:12.2f}" for seconds in times.values())
        print(f"{label:30}{columns}{times[many][label] / times[few][label]:8.1f}")


if __name__ == "__main__":
    if "submitit.core._submit" in sys.argv:
        run_as_job_python(sys.argv[1:])
    else:
        main()
