"""The microbenchmark compared with an all-reduce timing that uses none of our code.

    python tests/benchmarks/all_reduce.py [--ranks 2] [--rounds 5]

The plain timing is a number of all-reduces between two barriers: wall time divided by their number,
slowest rank. Ours is hpml_jobs.extras.microbenchmark.collectives. Both take turns in one process
group; the table shows the median of each, and of their ratio in the same round.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from statistics import median

import torch
import torch.distributed as dist

from hpml_jobs.core.measurements import CollectiveKind
from hpml_jobs.extras.microbenchmark.collectives import collective_times

SIZES = (2**16, 2**20, 2**22, 9_461_800, 2**24, 26_494_976, 44_695_848, 2**26)
REPETITIONS = 20


def plain_time_s(size: int) -> float:
    """Return the seconds of one all-reduce of `size` bytes, by the plain timing."""
    values = torch.ones(size // 4)
    for _ in range(5):
        dist.all_reduce(values)
    values.fill_(1.0)
    dist.barrier()
    start = time.perf_counter()
    for _ in range(REPETITIONS):
        dist.all_reduce(values)
    elapsed = torch.tensor(
        [(time.perf_counter() - start) / REPETITIONS], dtype=torch.float64
    )
    dist.all_reduce(elapsed, dist.ReduceOp.MAX)
    return float(elapsed)


def run_rank(rounds: int) -> None:
    """Run one rank: both timings in turn; rank 0 prints them as JSON."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    times: dict[int, list[tuple[float, float]]] = {size: [] for size in SIZES}
    for _ in range(rounds):
        for size in SIZES:
            sent = {CollectiveKind.ALL_REDUCE: [size]}
            probe = collective_times((torch.device("cpu"),), sent, 600, sizes=())
            ours_s = probe.times_s[size] if probe else float("nan")
            times[size].append((ours_s, plain_time_s(size)))
    if dist.get_rank() == 0:
        print(json.dumps(times))
    dist.destroy_process_group()


def main() -> None:
    """Start the ranks and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--as-rank", action="store_true")
    options = parser.parse_args()
    if options.as_rank:
        run_rank(options.rounds)
        return
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *("--local-addr=127.0.0.1", f"--nproc-per-node={options.ranks}"),
        *(__file__, "--as-rank", "--rounds", str(options.rounds)),
    ]
    process = subprocess.run(
        command,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=True,
        stdout=subprocess.PIPE,
    )
    cores = len(os.sched_getaffinity(0))
    print(f"{options.ranks} gloo ranks on {cores} cores, {options.rounds} rounds")
    print(
        f"{'bytes':>11} {'ours, ms':>10} {'plain, ms':>10} {'ours / plain':>13}  of each round"
    )
    for size, pairs in json.loads(process.stdout).items():
        ours, plain = (median(pair[i] for pair in pairs) for i in (0, 1))
        ratios = [ours_s / plain_s for ours_s, plain_s in pairs]
        sorted_ratios = " ".join(f"{ratio:.2f}" for ratio in sorted(ratios))
        times = f"{1e3 * ours:10.3f} {1e3 * plain:10.3f}"
        print(f"{int(size):11,} {times} {median(ratios):13.3f}  {sorted_ratios}")


if __name__ == "__main__":
    main()
