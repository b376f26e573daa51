"""How submission, status and collect grow from 100 cells to 1,000, on the test SLURM.

    python benchmarks/thousand.py [--cells 100 1000] [--runs 3]

Two numbers of processes, five batches, as many repeats as it takes. The jobs are SLURM's and run
the program's own wrapper, but instead of workers each leaves a hand-made valid record: no training,
no torch. A row that grows faster than the number of cells has a ratio above that of the cells.
Whole processes, the least of the runs; `status, running` is one look while jobs use the machine.
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

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from hpml_jobs.core.cell import Cell  # noqa: E402
from hpml_jobs.study.attempt import AttemptFolder  # noqa: E402  (the root is on the path only now)
from hpml_jobs.study.files import encode, write_whole  # noqa: E402
from tests.rig import Rig, missing  # noqa: E402

PROGRAM = [sys.executable, "-m", "hpml_jobs"]
KINDS = 10
WORDS = [
    *("-m", "gpus=1,2", "batch=16,32,64,128,256", "workload=digits", "cluster=rig"),
    *("--config-dir", str(ROOT / "tests" / "journeys" / "conf")),
    *("cluster.isolate=off", "cluster.request_gpus_for_cpu=false", "cluster.mem_gb_per_gpu=1"),
    "+cluster.sbatch.hold=true",
]


class Clock:
    """Commands on one study, and the seconds that each took at least."""

    def __init__(self, folder: Path, environment: dict[str, str], runs: int) -> None:
        self.folder, self.environment, self.runs = folder, environment, runs
        self.least_s: dict[str, float] = {}

    def __call__(self, label: str, *words: str, once: bool = False) -> str:
        """Run a command as often as asked; what it printed last."""
        text = ""
        for _ in range(1 if once else self.runs):
            start = time.perf_counter()
            command = [*PROGRAM, *words]
            done = subprocess.run(
                command, cwd=self.folder, env=self.environment, check=True, stdout=subprocess.PIPE
            )
            took_s = time.perf_counter() - start
            self.least_s[label] = min(took_s, self.least_s.get(label, took_s))
            text = done.stdout.decode()
        return text


def study(rig: Rig, folder: Path, cells: int, runs: int) -> dict[str, float]:
    """Seconds of each command on a study of so many cells, from submission to its tables."""
    python = folder / "job-python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).resolve()} "$@"\n')
    python.chmod(0o755)
    name = f"cells{cells}"
    clock = Clock(folder, rig.env | {"XDG_CONFIG_HOME": str(folder)}, runs)
    words = [*WORDS, f"repeats={cells // KINDS}", f"study={name}", f"cluster.python={python}"]
    sent = json.loads(clock("submit", *words, "--json", once=True))
    clock("status, waiting", "status", name)
    clock("submit again, nothing to send", *words)
    start = time.perf_counter()
    arrays = {row["job"].split("_")[0] for row in sent["cells"]}
    rig.run("scontrol", "release", ",".join(sorted(arrays))).check_returncode()
    time.sleep(min(20, cells / 10))
    clock("status, running", "status", name, once=True)
    subprocess.run(
        [*PROGRAM, "watch", name], cwd=folder, env=clock.environment, check=True, stdout=sys.stderr
    )
    clock.least_s["(all jobs)"] = time.perf_counter() - start
    clock("status, ended", "status", name)
    states = json.loads(clock("status --json", "status", name, "--json"))["cells"]
    ended = [state["outcome"] for state in states]
    if ended != ["ok"] * cells:
        sys.exit(f"of {cells} cells, {ended.count('ok')} are ok: {set(ended)}")
    clock("collect", "collect", name)
    return clock.least_s


def be_the_jobs_python(words: list[str]) -> None:
    """What `cluster.python` names: the wrapper as it is, with a record instead of workers."""
    from hpml_jobs.job import run as job  # noqa: PLC0415
    from tests.unit.builders import record  # noqa: PLC0415

    def run_workers(cell: Cell, _folder: object, attempt: AttemptFolder, _job: object):  # noqa: ANN202
        write_whole(attempt.record, encode(record(cell, attempt=attempt.id)))
        return 0, False

    job._run_workers = run_workers  # type: ignore[assignment]
    module = words[words.index("-m") + 1]
    sys.argv = [module, *words[words.index("-m") + 2 :]]
    runpy.run_module(module, run_name="__main__")


def main() -> None:
    """Run both studies, print their times and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    if reason := missing():
        sys.exit(reason)
    with tempfile.TemporaryDirectory() as name, Rig() as rig:
        found = {cells: study(rig, Path(name), cells, asked.runs) for cells in asked.cells}
    few, many = min(found), max(found)
    print(f"{os.cpu_count()} cores; seconds of whole processes; {many} cells are {many / few:g} x")
    heads = "".join(f"{f'{cells} cells':>12}" for cells in found)
    print(f"{'':30}{heads}{'ratio':>8}")
    for label in found[few]:
        times = "".join(f"{seconds[label]:12.2f}" for seconds in found.values())
        print(f"{label:30}{times}{found[many][label] / found[few][label]:8.1f}")


if __name__ == "__main__":
    if "submitit.core._submit" in sys.argv:
        be_the_jobs_python(sys.argv[1:])
    else:
        main()
