"""False alarms: warnings of a shortened demo that runs again and again on a quiet machine.

    python tests/benchmarks/false_alarms.py [--runs 20] [--images 10240] [--outputs DIR]

A run is a study of four cells (1 and 2 processes x batch 128 and 512 per process) and its report.
A line is what a reader sees: one per cause beside the numbers or under a table; warnings that are
only in checks.csv are counted apart. Whatever is warned of on a machine where nothing else runs is
a false alarm; a run in which an outside cause was measured (disturbed) is counted apart. The text
of every line is printed, so that it can be judged.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

CELLS = (
    "-m",
    "gpus=1,2",
    "batch=128,512",
    "workload=digits",
    "cluster=local",
    "device=cpu",
)
PROGRAM = [sys.executable, "-m", "hpml_jobs"]


def run_program(folder: Path, *words: str) -> str:
    """Run a command of hpml_jobs in a folder and return its output."""
    environment = os.environ | {"XDG_CONFIG_HOME": str(folder)}
    finished = subprocess.run(
        [*PROGRAM, *words],
        check=False,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    if finished.returncode:
        sys.exit(
            f"{' '.join(words)}: exit code {finished.returncode}\n{finished.stderr}"
        )
    return finished.stdout


def warnings_of_run(folder: Path, number: int, images: int) -> list[dict[str, Any]]:
    """Measure the cells of one run and return the causes that its report warns of."""
    study = f"run-{number}"
    run_program(folder, *CELLS, "probe_s=1", f"data.limit={images}", f"study={study}")
    (group,) = json.loads(run_program(folder, "collect", study, "--json"))["groups"]
    causes: list[dict[str, Any]] = group["warnings"]
    print(f"run {number}: {group['usability']}", flush=True)
    for cause in causes:
        if cause["tier"] != "list":
            cells = (
                f"{len(cause['cells'])} x"
                if len(cause["cells"]) > 1
                else cause["cells"][0]
            )
            print(
                f"  {cause['tier']:6} {cause['check']}: {cells}: {cause['reason']}",
                flush=True,
            )
    return causes


def measure(folder: Path, runs: int, images: int) -> None:
    """Measure all runs and print lines and warnings by check."""
    by_run = [warnings_of_run(folder, number, images) for number in range(1, runs + 1)]
    lines = [sum(cause["tier"] != "list" for cause in causes) for causes in by_run]
    disturbed = sum(
        any(cause["check"] == "disturbed" for cause in causes) for causes in by_run
    )
    print(
        f"\nlines of warnings in {runs} runs: median {median(lines)}, least {min(lines)}, most "
        f"{max(lines)}; {disturbed} runs with a measured outside cause\n"
    )
    cells = Counter[tuple[str, str]]()
    with_check = Counter[tuple[str, str]]()
    for causes in by_run:
        for cause in causes:
            cells[cause["tier"], cause["check"]] += len(cause["cells"])
        with_check.update({(cause["tier"], cause["check"]) for cause in causes})
    print("| shown | check | runs | cells |\n|---|---|---:|---:|")
    for (tier, check), count in with_check.most_common():
        print(
            f"| {tier} | {check} | {count} of {runs} | {cells[tier, check]} of {4 * runs} |"
        )


def main() -> None:
    """Run the demo and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--images", type=int, default=10_240)
    parser.add_argument("--outputs", type=Path, help="keep the studies in this folder")
    arguments = parser.parse_args()
    if arguments.outputs:
        arguments.outputs.mkdir(parents=True, exist_ok=True)
        measure(arguments.outputs.resolve(), arguments.runs, arguments.images)
    else:
        with tempfile.TemporaryDirectory() as folder:
            measure(Path(folder), arguments.runs, arguments.images)


if __name__ == "__main__":
    main()
