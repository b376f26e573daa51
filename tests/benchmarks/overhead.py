"""Overhead of the instruments: bare, timed and instrumented epochs in turn, in one process.

    python tests/benchmarks/overhead.py [--device cpu|cuda] [--rounds 20] [--ranks 1 2]
        [--batches 32 512] [--models digits_cnn resnet18] [--strategies ddp allreduce]
        [--iterations 32] [--json FILE]

A round is some epochs of one model on the same batches, which are in the device's memory before:
timed (as in a cell: plain DDP, two stamps per iteration), instrumented, timed again; with one
process also a bare loop in plain PyTorch. Every other round runs them in reverse order. The ratio
of the two timed epochs shows what could be resolved at all. The table shows medians of the ratios
with an interval that contains the true median with at least 95 % (order statistics). On the CPU
there are never more ranks than cores, on CUDA never more than GPUs.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.workload import Workload
from hpml_jobs.worker.epochs import instrumented_epoch, train_epoch
from hpml_jobs.worker.instruments.timing import synchronize
from hpml_jobs.worker.process_group import COLLECTIVE_TIMEOUT, read_placement
from hpml_jobs.worker.strategies import STRATEGIES
from hpml_jobs.worker.training import Training, make_training

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.intervals import with_interval
from tests.gpu.bench import ResidentBatches

RANKS = int(os.environ.get("WORLD_SIZE", "1"))

Ratios = dict[str, list[float]]
"""One value per round: `instrumented` and `again` (both / timed), with one process `bare`."""


def warm_training(cell: Cell, iterations: int) -> Training:
    """Return a training on batches in the device's memory, after its warm-up epoch."""
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    device = (
        torch.device("cuda", local_rank)
        if cell.device is Device.CUDA
        else torch.device("cpu")
    )
    if device.type == "cuda":
        torch.cuda.set_device(device)
    strategy = STRATEGIES[cell.strategy](cell, read_placement(cell), (device,))
    if cell.strategy.under_torchrun and not dist.is_initialized():
        strategy.setup(COLLECTIVE_TIMEOUT)
    training = make_training(cell, strategy, Path())
    size = cell.workload.image_size
    images = torch.randn((cell.batch, 3, size, size), device=device)
    targets = torch.randint(cell.workload.classes, (cell.batch,), device=device)
    training.loader = ResidentBatches([(images, targets)] * iterations)
    train_epoch(training, 0, Role.WARMUP)
    return training


def epoch_s(training: Training, number: int, *, instrumented: bool) -> float:
    """Return the seconds of one epoch on the slowest rank."""
    training.rewrap(instrumented=instrumented)
    if instrumented:
        result = instrumented_epoch(training, number)
    else:
        result = train_epoch(training, number, Role.PLAIN)
    slowest = torch.tensor([result.epoch.epoch_s], device=training.strategy.devices[0])
    if RANKS > 1:
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(slowest)


def bare_epoch_s(training: Training) -> float:
    """Return the seconds of one epoch of a loop in plain PyTorch on the same batches."""
    model, optimizer, devices = (
        training.model,
        training.optimizer,
        training.strategy.devices,
    )
    loss_of = torch.nn.CrossEntropyLoss()
    model.train()
    synchronize(devices)
    begin = time.perf_counter()
    for images, targets in training.loader:
        loss_of(model(images), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
    synchronize(devices)
    return time.perf_counter() - begin


def measure_ratios(training: Training, rounds: int) -> Ratios:
    """Return the ratios of every round."""
    actions: dict[str, Callable[[int], float]] = {
        "timed": lambda number: epoch_s(training, number, instrumented=False),
        "instrumented": lambda number: epoch_s(training, number, instrumented=True),
        "again": lambda number: epoch_s(training, number, instrumented=False),
    }
    if training.cell.strategy is Strategy.SINGLE:
        actions["bare"] = lambda _number: bare_epoch_s(training)
    ratios: Ratios = {name: [] for name in actions if name != "timed"}
    for number in range(1, rounds + 1):
        order = [*actions][:: 1 if number % 2 else -1]
        seconds = {name: actions[name](number) for name in order}
        for name, values in ratios.items():
            value = seconds[name] / seconds["timed"]
            values.append(1 / value if name == "bare" else value)
    return ratios


def measure_cases(options: argparse.Namespace, ranks: int) -> list[Any]:
    """Return model, strategy, batch and ratios of every case, as this rank measured them."""
    torch.set_num_threads(1)
    results = []
    for model, name, batch in cases(options, ranks):
        images = options.iterations * batch * ranks
        workload = Workload(name=model, model=model, data="synthetic", images=images)
        cell = Cell(
            gpus=ranks,
            batch=batch,
            strategy=name,
            workload=workload,
            device=Device(options.device),
            loader_workers=0,
        )
        training = warm_training(cell, options.iterations)
        ratios = measure_ratios(training, options.rounds)
        results.append([model, name.value, batch, ratios])
    return results


def run_rank(options: argparse.Namespace) -> None:
    """Run one rank; rank 0 prints the ratios as JSON."""
    results = measure_cases(options, RANKS)
    if int(os.environ.get("RANK", "0")) == 0:
        print(json.dumps(results))
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may abort a process that tears down


def cases(options: argparse.Namespace, ranks: int) -> list[tuple[str, Strategy, int]]:
    """Return models, strategies and batches; several ranks need one that exchanges gradients."""
    names = [Strategy(name) for name in options.strategies]
    names = [name for name in names if name.under_torchrun or ranks == 1]
    return [
        (model, name, batch)
        for model in options.models
        for batch in options.batches
        for name in names
    ]


def launch(options: argparse.Namespace, ranks: int) -> list[Any]:
    """Run the ranks in processes of their own; return the ratios of every case."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    words = ["--as-rank", *sys.argv[1:]]
    process = subprocess.run(
        [sys.executable, *torchrun, f"--nproc-per-node={ranks}", __file__, *words],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=True,
        stdout=subprocess.PIPE,
    )
    results: list[Any] = json.loads(process.stdout)
    return results


def figures_of(name: str, batch: int, ratios: Ratios) -> dict[str, dict[str, Any]]:
    """Return the figures of one case for --json."""
    keys = {f"{name}_{batch}": ratios["instrumented"]}
    if "bare" in ratios:
        keys[f"bare_{batch}"] = ratios["bare"]
    return {
        key: {"value": median(values), "note": with_interval(values)}
        for key, values in keys.items()
    }


def parse_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=[*Device], default="cpu")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 512])
    parser.add_argument("--models", nargs="+", default=["digits_cnn"])
    parser.add_argument(
        "--strategies", nargs="+", default=["single", "ddp", "allreduce"]
    )
    parser.add_argument("--iterations", type=int, default=32)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--as-rank", action="store_true")
    return parser.parse_args()


def main() -> None:
    """Start the ranks and print the table."""
    options = parse_options()
    if options.as_rank:
        run_rank(options)
        return
    on_cuda = options.device == "cuda"
    places = torch.cuda.device_count() if on_cuda else len(os.sched_getaffinity(0))
    unit = "GPU(s)" if on_cuda else "core(s)"
    print(
        f"{options.rounds} rounds on {places} {unit}; medians of ratios, slowest rank"
    )
    headings = "".join(
        f"{text:>27}"
        for text in ("instrumented / timed", "timed / timed", "timed / bare")
    )
    print(f"{'model':15} {'batch':>5} {'ranks':>5} {'strategy':10}{headings}")
    figures: dict[str, dict[str, Any]] = {}
    for ranks in options.ranks:
        if ranks > places:
            print(
                f"{ranks} ranks on {places} {unit} would measure something else: skipped"
            )
            continue
        for model, name, batch, ratios in launch(options, ranks):
            texts = [with_interval(ratios[key]) for key in ("instrumented", "again")]
            texts += [with_interval(ratios["bare"])] if "bare" in ratios else ["–"]
            columns = "".join(f"{text:>27}" for text in texts)
            print(f"{model:15} {batch:5} {ranks:5} {name:10}{columns}", flush=True)
            figures |= figures_of(name, batch, ratios)
    if options.json:
        options.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
