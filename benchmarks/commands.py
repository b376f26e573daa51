"""How long the commands take, each beside a bare Python start measured in the same minute.

    python benchmarks/commands.py [--runs 7]

`status` and `collect` look at nine real cells (made first: nine small local runs, about a minute);
submission goes to the test SLURM (tests/rig: root and Debian's packages), its jobs held so that
they never run. Commands alternate; the table shows the median, the smallest and the largest time
and the median of the ratio to `python -c pass` in the same round.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.rig import Rig, missing

CONF = Path(__file__).parents[1] / "tests" / "journeys" / "conf"
PROGRAM = [sys.executable, "-m", "hpml_jobs"]
BARE = [sys.executable, "-c", "pass"]
LIMITS_S = {"--help": 0.5, "status, 9": 0.5, "submit 9": 1.5, "submit 300": 5.0, "collect 9": 2.0}


def timed(command: list[str], folder: Path, environment: dict[str, str]) -> float:
    """Wall seconds of one whole process; it must succeed."""
    start = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return time.perf_counter() - start


def commands(run: int) -> dict[str, list[str]]:
    """One round of commands; every round sends studies of its own."""
    held = ["-m", "cluster=rig", "workload=digits", "+cluster.sbatch.hold=true"]
    conf = ["--config-dir", str(CONF)]
    many = ["gpus=1,2,4", f"batch=range(1,{300 // 3 + 1})"]
    return {
        "--help": [*PROGRAM, "--help"],
        "status, 9": [*PROGRAM, "status", "nine"],
        "collect 9": [*PROGRAM, "collect", "nine"],
        "submit 9": [*PROGRAM, *held, "gpus=1,2,4", "batch=32,128,512", f"study=n{run}", *conf],
        "submit 300": [*PROGRAM, *held, *many, f"study=m{run}", *conf],
    }


def main() -> None:
    """Make the nine cells, run the rounds, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    if reason := missing():
        sys.exit(reason)
    with tempfile.TemporaryDirectory() as name, Rig() as rig:
        folder = Path(name)
        environment = rig.env | {"XDG_CONFIG_HOME": str(folder)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        local = ["grid=lab", "cluster=local", "device=cpu", "data.limit=2048", "study=nine"]
        subprocess.run([*PROGRAM, *local], cwd=folder, env=environment, check=True)
        times: dict[str, list[float]] = {}
        ratios: dict[str, list[float]] = {}
        for run in range(runs):
            bare = timed(BARE, folder, environment)
            for label, command in commands(run).items():
                seconds = timed(command, folder, environment)
                rig.run("scancel", "--me")
                times.setdefault(label, []).append(seconds)
                ratios.setdefault(label, []).append(seconds / bare)
    print(f"{runs} rounds on {os.cpu_count()} cores; seconds of whole processes")
    print(f"{'command':12} {'median':>7} {'min':>7} {'max':>7} {'limit':>6} {'/ bare Python':>14}")
    for label, found in times.items():
        middle, ratio = statistics.median(found), statistics.median(ratios[label])
        print(
            f"{label:12} {middle:7.3f} {min(found):7.3f} {max(found):7.3f} "
            f"{LIMITS_S[label]:6.1f} {ratio:14.1f}"
        )


if __name__ == "__main__":
    main()
