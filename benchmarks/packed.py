"""What packing costs and saves: nine cells as arrays and in one allocation, on the test SLURM.

    python benchmarks/packed.py [--rounds 3]

Every round sends the same nine cells twice, in turns first: as arrays one cell at a time
(cluster.isolate=serial, three sbatch calls) and as a pack. Wall-clock: from the command until the
last job has ended. Allocated: GPU-seconds by SLURM's accounting. The test SLURM has no queue, so
what a pack saves on a busy cluster (queueing once instead of nine times) is not in these figures;
what it costs is: small cells hold the GPUs of the largest.
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

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.rig import Rig, missing

CONF = Path(__file__).parents[1] / "tests" / "journeys" / "conf"
PROGRAM = [sys.executable, "-m", "hpml_jobs"]
CELLS = ("-m", "gpus=1,2,4", "batch=32,128,512", "workload=digits", "data.limit=2048")


def study(rig: Rig, folder: Path, name: str, *words: str) -> tuple[float, float]:
    """Wall seconds of a study, and the GPU-seconds it held."""
    environment = rig.env | {"XDG_CONFIG_HOME": str(folder)}
    asked = [*CELLS, "protocol=lab", "cluster=rig", f"study={name}", "--config-dir", str(CONF)]

    def program(*command: str) -> str:
        return subprocess.run(
            [*PROGRAM, *command], cwd=folder, env=environment, check=True, stdout=subprocess.PIPE
        ).stdout.decode()

    begin = time.perf_counter()
    answer = json.loads(program(*asked, *words, "--json"))
    jobs = {row["job"].split("_")[0] for row in answer["cells"]}
    while rig.run("squeue", "-h", "-n", f"hpml-{name}").stdout.strip():
        time.sleep(0.2)
    wall_s = time.perf_counter() - begin
    states = json.loads(program("status", name, "--json"))["cells"]
    if any(cell["outcome"] != "ok" for cell in states):
        sys.exit(f"not all cells are ok: {states}")
    held_s = 0.0
    time.sleep(6)  # accounting hears of the end a little later
    for row in rig.sacct(",".join(jobs), "ElapsedRaw", "AllocTRES"):
        tres = dict(pair.split("=") for pair in row["AllocTRES"].split(","))
        held_s += int(row["ElapsedRaw"]) * int(tres["gres/gpu"])
    return wall_s, held_s


def main() -> None:
    """Run the rounds, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    if reason := missing():
        sys.exit(reason)
    found: dict[str, list[tuple[float, float]]] = {"arrays": [], "pack": []}
    with tempfile.TemporaryDirectory() as name, Rig() as rig:
        for number in range(rounds):
            for way in ("arrays", "pack") if number % 2 == 0 else ("pack", "arrays"):
                packed = f"pack={str(way == 'pack').lower()}"
                found[way].append(study(rig, Path(name), f"{way}{number}", packed))
                print(f"round {number + 1}, {way}: {found[way][-1]}", file=sys.stderr)
    print(f"{rounds} rounds on {os.cpu_count()} cores; medians")
    print(f"{'':10} {'wall-clock, s':>14} {'GPU-seconds':>12}")
    for way, values in found.items():
        walls, held = zip(*values, strict=True)
        print(f"{way:10} {statistics.median(walls):14.1f} {statistics.median(held):12.0f}")
    for index, what in enumerate(("wall-clock", "GPU-seconds")):
        pairs = zip(found["pack"], found["arrays"], strict=True)
        ratios = sorted(pack[index] / arrays[index] for pack, arrays in pairs)
        middle, least, most = statistics.median(ratios), ratios[0], ratios[-1]
        print(f"pack / arrays, {what}: {middle:.2f} ({least:.2f} to {most:.2f})")


if __name__ == "__main__":
    main()
