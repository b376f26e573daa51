"""Overhead of the instruments: bare and instrumented epochs in turn, in one process group.

    python benchmarks/overhead.py [--rounds 20] [--ranks 1 2]

A round is three epochs of one model: bare (as in the timed epoch: plain DDP, two stamps per
iteration), instrumented, and bare again; every other round runs them in reverse order. The ratio of
the two bare epochs shows what could be resolved at all. The table shows medians of the ratios with
an interval that contains the true median with at least 95 % (order statistics). There are never
more ranks than cores.
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

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.workload import Workload
from hpml_jobs.report.merge.statistics import interval
from hpml_jobs.worker.epochs import instrumented_epoch, train_epoch
from hpml_jobs.worker.process_group import COLLECTIVE_TIMEOUT, read_placement
from hpml_jobs.worker.strategies import STRATEGIES
from hpml_jobs.worker.training import Training, make_training

BATCH = 32
WORKLOADS = {
    "digits_cnn": Workload(name="digits_cnn", model="digits_cnn", data="synthetic", images=2_048),
    "resnet18": Workload(name="resnet18", model="resnet18", data="synthetic", images=256),
}
DISTRIBUTED = (Strategy.DDP, Strategy.ALLREDUCE)
RANKS = int(os.environ.get("WORLD_SIZE", "1"))


def warm_training(workload: Workload, name: Strategy) -> Training:
    """Return a training after its warm-up epoch."""
    cell = Cell(
        gpus=RANKS,
        batch=BATCH,
        strategy=name,
        workload=workload,
        device=Device.CPU,
        loader_workers=0,
    )
    strategy = STRATEGIES[name](cell, read_placement(cell), (torch.device("cpu"),))
    if RANKS > 1 and not dist.is_initialized():
        strategy.setup(COLLECTIVE_TIMEOUT)
    training = make_training(cell, strategy, Path())
    train_epoch(training, 0, Role.WARMUP)
    return training


def epoch_s(training: Training, number: int, *, instrumented: bool) -> float:
    """Return the seconds of one epoch on the slowest rank."""
    training.rewrap(instrumented=instrumented)
    if instrumented:
        result = instrumented_epoch(training, number)
    else:
        result = train_epoch(training, number, Role.PLAIN)
    slowest = torch.tensor([result.epoch.epoch_s])
    if RANKS > 1:
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(slowest)


def measure_ratios(workload: Workload, name: Strategy, rounds: int) -> dict[str, list[float]]:
    """Return for every round the ratios instrumented / bare and bare / bare."""
    training = warm_training(workload, name)
    ratios: dict[str, list[float]] = {"instrumented": [], "bare again": []}
    for number in range(1, rounds + 1):
        order = ["bare", "instrumented", "bare again"][:: 1 if number % 2 else -1]
        times = {
            label: epoch_s(training, number, instrumented=label == "instrumented")
            for label in order
        }
        for label, values in ratios.items():
            values.append(times[label] / times["bare"])
    return ratios


def run_rank(rounds: int) -> None:
    """Run one rank: all workloads and strategies; rank 0 prints the ratios as JSON."""
    torch.set_num_threads(1)
    names = DISTRIBUTED if RANKS > 1 else (Strategy.SINGLE,)
    ratios = [
        [workload_name, name.value, measure_ratios(workload, name, rounds)]
        for workload_name, workload in WORKLOADS.items()
        for name in names
    ]
    if int(os.environ.get("RANK", "0")) == 0:
        print(json.dumps(ratios))
    if RANKS > 1:
        dist.destroy_process_group()


def median_with_interval(values: list[float]) -> str:
    """Return the median and its interval as text."""
    bounds = interval(values)
    return f"{median(values):.4f}" + (f" [{bounds.low:.4f}, {bounds.high:.4f}]" if bounds else "")


def main() -> None:
    """Start the ranks and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--as-rank", action="store_true")
    options = parser.parse_args()
    if options.as_rank:
        run_rank(options.rounds)
        return
    cores = len(os.sched_getaffinity(0))
    print(
        f"{options.rounds} rounds on {cores} cores; batch {BATCH}; ratios of epochs, slowest rank"
    )
    headings = f"{'instrumented / bare':>26} {'bare / bare':>26}"
    print(f"{'model':11} {'ranks':>5} {'strategy':10} {headings}")
    for ranks in options.ranks:
        if ranks > cores:
            print(f"{ranks} ranks on {cores} cores would measure the scheduler: skipped")
            continue
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
        launcher = [*torchrun, f"--nproc-per-node={ranks}"] if ranks > 1 else []
        command = [sys.executable, *launcher, __file__, "--as-rank"]
        process = subprocess.run(
            [*command, "--rounds", str(options.rounds)],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            check=True,
            stdout=subprocess.PIPE,
        )
        for workload_name, strategy, ratios in json.loads(process.stdout):
            instrumented = median_with_interval(ratios["instrumented"])
            bare = median_with_interval(ratios["bare again"])
            print(
                f"{workload_name:11} {ranks:5} {strategy:10} {instrumented:>26} {bare:>26}",
                flush=True,
            )


if __name__ == "__main__":
    main()
