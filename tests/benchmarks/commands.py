"""Response times of the commands, compared with the start of Python in the same round.

    python tests/benchmarks/commands.py [--runs 7]

`status` and `collect` read nine real cells (made first by nine small local runs, about a minute).
Submission goes to the test SLURM (tests/rig; needs root and Debian's packages), with its jobs on
hold. Commands alternate. The table shows median, minimum and maximum, and the median of the ratio
to `python -c pass` in the same round.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.rig import Rig, missing_requirement

CONF = Path(__file__).parents[1] / "journeys" / "conf"
PROGRAM = [sys.executable, "-m", "hpml_jobs"]
BARE_PYTHON = [sys.executable, "-c", "pass"]
LIMITS_S = {
    "--help": 0.5,
    "status, 9": 0.5,
    "submit 9": 1.5,
    "submit 300": 5.0,
    "collect 9": 2.0,
}


def timed(command: list[str], folder: Path, environment: dict[str, str]) -> float:
    """Return the wall-clock seconds of one process; exit if it fails."""
    start = time.perf_counter()
    subprocess.run(
        command, cwd=folder, env=environment, check=True, capture_output=True
    )
    return time.perf_counter() - start


def commands(run: int) -> dict[str, list[str]]:
    """Return the commands of one round; every round submits its own studies."""
    held = ["-m", "cluster=rig", "workload=digits", "+cluster.sbatch.hold=true"]
    conf = ["--config-dir", str(CONF)]
    cells_300 = ["gpus=1,2,4", f"batch=range(1,{300 // 3 + 1})"]
    return {
        "--help": [*PROGRAM, "--help"],
        "status, 9": [*PROGRAM, "status", "nine"],
        "collect 9": [*PROGRAM, "collect", "nine"],
        "submit 9": [
            *PROGRAM,
            *held,
            "gpus=1,2,4",
            "batch=32,128,512",
            f"study=n{run}",
            *conf,
        ],
        "submit 300": [*PROGRAM, *held, *cells_300, f"study=m{run}", *conf],
    }


def main() -> None:
    """Make the nine cells, run the rounds, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    if reason := missing_requirement():
        sys.exit(reason)
    with tempfile.TemporaryDirectory() as name, Rig() as rig:
        folder = Path(name)
        environment = rig.env | {"XDG_CONFIG_HOME": str(folder)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        local = [
            "grid=lab",
            "cluster=local",
            "device=cpu",
            "data.limit=2048",
            "study=nine",
        ]
        subprocess.run([*PROGRAM, *local], cwd=folder, env=environment, check=True)
        times: dict[str, list[float]] = {}
        ratios: dict[str, list[float]] = {}
        for run in range(runs):
            bare = timed(BARE_PYTHON, folder, environment)
            for label, command in commands(run).items():
                elapsed = timed(command, folder, environment)
                rig.run("scancel", "--me")
                times.setdefault(label, []).append(elapsed)
                ratios.setdefault(label, []).append(elapsed / bare)
    print(f"{runs} rounds on {os.cpu_count()} cores; seconds of whole processes")
    print(
        f"{'command':12} {'median':>7} {'min':>7} {'max':>7} {'limit':>6} {'/ bare Python':>14}"
    )
    for label, seconds in times.items():
        median, ratio = statistics.median(seconds), statistics.median(ratios[label])
        print(
            f"{label:12} {median:7.3f} {min(seconds):7.3f} {max(seconds):7.3f} "
            f"{LIMITS_S[label]:6.1f} {ratio:14.1f}"
        )


if __name__ == "__main__":
    main()
