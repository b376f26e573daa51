"""What `auto` costs beside the whole grid, and whether it names the same size: real studies here.

    python tests/benchmarks/auto.py FOLDER [PAIRS]

Each pair is a grid of 1 and 2 processes and three batches of the digits, and a study of the same
candidates with gpus=auto. A line per study: seconds, process-seconds of its cells, first sentence.
"""

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

from hpml_jobs.core.text import unix_time
from hpml_jobs.study.study import Study

HERE = ("cluster=local", "device=cpu", "workload=digits", "data.limit=6144")
SHORT = ("probe_s=0.5", "loader_workers=0")
LIMIT = "min_efficiency=0.5"
"""Far from what 2 processes reach here: near a limit single runs answer differently."""
SWEPT = ("-m", "batch=32,64,128")
STUDIES = {
    "grid": (*SWEPT, "gpus=1,2"),
    "auto": (*SWEPT, "gpus=auto", "max_gpus=2", LIMIT),
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("pairs", type=int, nargs="?", default=10)
    options = parser.parse_args()
    same = 0
    shares = []
    for pair in range(options.pairs):
        sizes, costs = {}, {}
        for kind, words in STUDIES.items():
            name = f"{kind}{pair}"
            outputs = (f"outputs={options.folder}", f"study={name}")
            began = time.monotonic()
            _program(*words, *HERE, *SHORT, *outputs)
            seconds = time.monotonic() - began
            costs[kind] = _process_s(Study(options.folder / name))
            sentence = _answer(name, options.folder)
            sizes[kind] = re.findall(r"Use (\d+)|$", sentence)[0]
            print(f"{name}: {seconds:.0f} s, {costs[kind]:.0f} process-s. {sentence}")
        same += sizes["grid"] == sizes["auto"]
        shares.append(costs["auto"] / costs["grid"])
    mean = sum(shares) / len(shares)
    print(f"{same} of {options.pairs} the same size; {mean:.2f} of the process-seconds")


def _program(*words: str) -> str:
    command = [sys.executable, "-m", "hpml_jobs", *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout


def _process_s(study: Study) -> float:
    """Return the process-seconds of all cells, start-up included."""
    total = 0.0
    for folder in study.cells():
        record = folder.read_record()
        began = unix_time(record.attempt.started) or 0.0
        ended = unix_time(record.attempt.ended) or 0.0
        total += record.cell.gpus * (ended - began)
    return total


def _answer(name: str, outputs: Path) -> str:
    shown = _program("collect", name, LIMIT, "--outputs", str(outputs))
    return shown.splitlines()[0]


if __name__ == "__main__":
    main()
