"""Cost of packing: nine cells as arrays and in one allocation, on the test SLURM.

    python tests/benchmarks/packed.py [--rounds 3]

A round submits the same nine cells twice, in alternating order: as arrays, one cell at a time
(cluster.isolate=serial, three sbatch calls), and as a pack. The wall-clock time is from the command
until the last job has ended; GPU-seconds are from SLURM's accounting. The test SLURM has no queue,
so the figures show the cost of a pack (small cells hold the GPUs of the largest) and not its gain
on a busy cluster (one wait in the queue instead of nine).
"""

import argparse
import json
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
CELLS = ("-m", "gpus=1,2,4", "batch=32,128,512", "workload=digits", "data.limit=2048")


def run_study(
    rig: Rig, folder: Path, name: str, *overrides: str
) -> tuple[float, float]:
    """Submit a study and wait for it; return wall-clock seconds and allocated GPU-seconds."""
    environment = rig.env | {"XDG_CONFIG_HOME": str(folder)}
    arguments = [
        *CELLS,
        "protocol=lab",
        "cluster=rig",
        f"study={name}",
        "--config-dir",
        str(CONF),
    ]

    def run_program(*command: str) -> str:
        return subprocess.run(
            [*PROGRAM, *command],
            cwd=folder,
            env=environment,
            check=True,
            stdout=subprocess.PIPE,
        ).stdout.decode()

    start = time.perf_counter()
    submission = json.loads(run_program(*arguments, *overrides, "--json"))
    jobs = {row["job"].split("_")[0] for row in submission["cells"]}
    while rig.run("squeue", "-h", "-n", f"hpml-{name}").stdout.strip():
        time.sleep(0.2)
    wall_s = time.perf_counter() - start
    states = json.loads(run_program("status", name, "--json"))["cells"]
    if any(cell["outcome"] != "ok" for cell in states):
        sys.exit(f"not all cells are ok: {states}")
    gpu_s = 0.0
    time.sleep(6)  # accounting receives the end of a job a little later
    for row in rig.sacct(",".join(jobs), "ElapsedRaw", "AllocTRES"):
        tres = dict(pair.split("=") for pair in row["AllocTRES"].split(","))
        gpu_s += int(row["ElapsedRaw"]) * int(tres["gres/gpu"])
    return wall_s, gpu_s


def main() -> None:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    if reason := missing_requirement():
        sys.exit(reason)
    times: dict[str, list[tuple[float, float]]] = {"arrays": [], "pack": []}
    with tempfile.TemporaryDirectory() as name, Rig() as rig:
        for number in range(rounds):
            for mode in ("arrays", "pack") if number % 2 == 0 else ("pack", "arrays"):
                override = f"pack={str(mode == 'pack').lower()}"
                times[mode].append(
                    run_study(rig, Path(name), f"{mode}{number}", override)
                )
                print(f"round {number + 1}, {mode}: {times[mode][-1]}", file=sys.stderr)
    print(f"{rounds} rounds on {os.cpu_count()} cores; medians")
    print(f"{'':10} {'wall-clock, s':>14} {'GPU-seconds':>12}")
    for mode, values in times.items():
        wall_s, gpu_s = zip(*values, strict=True)
        print(
            f"{mode:10} {statistics.median(wall_s):14.1f} {statistics.median(gpu_s):12.0f}"
        )
    for index, quantity in enumerate(("wall-clock", "GPU-seconds")):
        pairs = zip(times["pack"], times["arrays"], strict=True)
        ratios = sorted(pack[index] / arrays[index] for pack, arrays in pairs)
        median = statistics.median(ratios)
        print(
            f"pack / arrays, {quantity}: {median:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        )


if __name__ == "__main__":
    main()
