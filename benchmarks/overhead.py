"""What the instruments cost: pairs of epochs, bare and instrumented, in one process group.

    python benchmarks/overhead.py [--pairs 20] [--ranks 1 2]

Every round is three epochs of one model: bare (as in the timed epoch: plain DDP, two stamps per
iteration), instrumented, and bare once more, in this order or the other way round, in turns. The
ratio of the two bare ones is what could be resolved at all. The table shows medians of the ratios,
each with an interval that holds the true median with at least 95 % (order statistics). Ranks never
outnumber cores.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist

from hpml_jobs.core.cell import Cell, Device, Strategy
from hpml_jobs.core.workload import Workload
from hpml_jobs.report.merge.statistics import interval
from hpml_jobs.worker.epochs import instrumented_epoch, train_epoch
from hpml_jobs.worker.strategies import STRATEGIES, this_place
from hpml_jobs.worker.training import Training, make_training

BATCH = 32
WORKLOADS = {
    "digits_cnn": Workload(name="digits_cnn", model="digits_cnn", data="synthetic", images=2_048),
    "resnet18": Workload(name="resnet18", model="resnet18", data="synthetic", images=256),
}
KINDS = (Strategy.DDP, Strategy.ALLREDUCE)
RANKS = int(os.environ.get("WORLD_SIZE", "1"))


def made(workload: Workload, kind: Strategy) -> Training:
    """A training that is warmed up."""
    cell = Cell(
        gpus=RANKS,
        batch=BATCH,
        strategy=kind,
        workload=workload,
        device=Device.CPU,
        loader_workers=0,
    )
    strategy = STRATEGIES[kind](cell, this_place(cell), (torch.device("cpu"),))
    if RANKS > 1 and not dist.is_initialized():
        strategy.setup()
    training = make_training(cell, strategy, Path())
    train_epoch(training, 0, "warmup")
    return training


def epoch_s(training: Training, number: int, *, watched: bool) -> float:
    """Seconds of one epoch, the slowest rank's."""
    training.wrap_anew(observed=watched)
    run = instrumented_epoch if watched else train_epoch
    slowest = torch.tensor([run(training, number, "plain").epoch.epoch_s])
    if RANKS > 1:
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(slowest)


def ratios(workload: Workload, kind: Strategy, pairs: int) -> dict[str, list[float]]:
    """Of every round: instrumented / bare, and bare / bare."""
    training = made(workload, kind)
    found: dict[str, list[float]] = {"watched": [], "again": []}
    for number in range(1, pairs + 1):
        order = ["bare", "watched", "again"][:: 1 if number % 2 else -1]
        times = {which: epoch_s(training, number, watched=which == "watched") for which in order}
        for which, values in found.items():
            values.append(times[which] / times["bare"])
    return found


def as_rank(pairs: int) -> None:
    """One rank: all workloads and strategies; rank 0 prints what it found as JSON."""
    torch.set_num_threads(1)
    kinds = KINDS if RANKS > 1 else (Strategy.SINGLE,)
    found = [
        [name, kind.value, ratios(workload, kind, pairs)]
        for name, workload in WORKLOADS.items()
        for kind in kinds
    ]
    if int(os.environ.get("RANK", "0")) == 0:
        print(json.dumps(found))
    if RANKS > 1:
        dist.destroy_process_group()


def told(values: list[float]) -> str:
    """A median with its interval."""
    around = interval(values)
    return f"{median(values):.4f}" + (f" [{around.low:.4f}, {around.high:.4f}]" if around else "")


def main() -> None:
    """Start the ranks, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--as-rank", action="store_true")
    asked = parser.parse_args()
    if asked.as_rank:
        as_rank(asked.pairs)
        return
    cores = len(os.sched_getaffinity(0))
    print(f"{asked.pairs} rounds on {cores} cores; batch {BATCH}; ratios of epochs, slowest rank's")
    heads = f"{'instrumented / bare':>26} {'bare / bare':>26}"
    print(f"{'model':11} {'ranks':>5} {'strategy':10} {heads}")
    for ranks in asked.ranks:
        if ranks > cores:
            print(f"{ranks} ranks on {cores} cores would measure the scheduler: left out")
            continue
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
        start = [*torchrun, f"--nproc-per-node={ranks}"] if ranks > 1 else []
        command = [sys.executable, *start, __file__, "--as-rank", "--pairs", str(asked.pairs)]
        done = subprocess.run(
            command, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True, stdout=subprocess.PIPE
        )
        for name, kind, found in json.loads(done.stdout):
            figures = f"{told(found['watched']):>26} {told(found['again']):>26}"
            print(f"{name:11} {ranks:5} {kind:10} {figures}", flush=True)


if __name__ == "__main__":
    main()
