"""The microbenchmark's times beside those of an all-reduce timing that uses none of our code.

    python benchmarks/all_reduce.py [--ranks 2] [--rounds 5]

Theirs is what a person would write: a few all-reduces after each other between two barriers, the
wall time divided by their number, the slowest rank. Ours is
hpml_jobs.worker.instruments.microbenchmark. Both take turns in one process group;
the table shows the median of each and of their ratio in the same round.
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

from hpml_jobs.worker.instruments import microbenchmark as probe

SIZES = (2**16, 2**20, 2**22, 9_461_800, 2**24, 26_494_976, 44_695_848, 2**26)
REPETITIONS = 20


def plainly(size: int) -> float:
    """Seconds of one all-reduce of `size` bytes, the plain way."""
    values = torch.ones(size // 4)
    for _ in range(5):
        dist.all_reduce(values)
    values.fill_(1.0)
    dist.barrier()
    start = time.perf_counter()
    for _ in range(REPETITIONS):
        dist.all_reduce(values)
    passed = torch.tensor([(time.perf_counter() - start) / REPETITIONS], dtype=torch.float64)
    dist.all_reduce(passed, dist.ReduceOp.MAX)
    return float(passed)


def as_rank(rounds: int) -> None:
    """One rank: both timings in turn; rank 0 prints them as JSON."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found: dict[int, list[tuple[float, float]]] = {size: [] for size in SIZES}
    for _ in range(rounds):
        for size in SIZES:
            ours = probe.all_reduce_times((torch.device("cpu"),), [size], 600, ladder=())
            mine_s = ours.times_s[size] if ours else float("nan")
            found[size].append((mine_s, plainly(size)))
    if dist.get_rank() == 0:
        print(json.dumps(found))
    dist.destroy_process_group()


def main() -> None:
    """Start the ranks, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--as-rank", action="store_true")
    asked = parser.parse_args()
    if asked.as_rank:
        as_rank(asked.rounds)
        return
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *("--local-addr=127.0.0.1", f"--nproc-per-node={asked.ranks}"),
        *(__file__, "--as-rank", "--rounds", str(asked.rounds)),
    ]
    done = subprocess.run(
        command, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True, stdout=subprocess.PIPE
    )
    print(
        f"{asked.ranks} gloo ranks on {len(os.sched_getaffinity(0))} cores, {asked.rounds} rounds"
    )
    print(f"{'bytes':>11} {'ours, ms':>10} {'plain, ms':>10} {'ours / plain':>13}  in each round")
    for size, pairs in json.loads(done.stdout).items():
        ours, theirs = (median(pair[i] for pair in pairs) for i in (0, 1))
        ratios = [mine / plain for mine, plain in pairs]
        each = " ".join(f"{ratio:.2f}" for ratio in sorted(ratios))
        times = f"{1e3 * ours:10.3f} {1e3 * theirs:10.3f}"
        print(f"{int(size):11,} {times} {median(ratios):13.3f}  {each}")


if __name__ == "__main__":
    main()
