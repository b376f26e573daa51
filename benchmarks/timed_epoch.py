"""The timed epoch compared with a bare loop: fresh launches in turn, on a folder of images.

    python benchmarks/timed_epoch.py [--images FOLDER] [--pairs 20] [--ranks 1 2] [--limit 512]

FOLDER holds train/<class>/<image>; without it, one of JPEG images of scikit-learn's digits is made.
A pair is one launch of a loop in plain PyTorch and one of ours, in alternating order: torchvision's
ResNet-18, the same images, augmentation, loader, sampler, batch and threads, DDP on gloo from two
ranks on. Each launch runs a warm-up epoch and a timed one. The table shows the median of the ratios
with an interval that contains the true median with at least 95 % (order statistics), and the same
ratio for the wait for the first batch and for the median iteration. Never more ranks than cores.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

# Nothing of hpml_jobs, and no torch, is imported here: the bare loop must not contain it.

BATCH = 32
WORKERS = 2
RANKS = int(os.environ.get("WORLD_SIZE", "1"))
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)

Times = dict[str, float]
"""Seconds of the timed epoch: `epoch`, `first` batch, median `step` without its first."""


def bare_epochs(root: Path, limit: int) -> Times:
    """Train two epochs in plain PyTorch; return the times of the second on this rank."""
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415
    from torch.nn.parallel import DistributedDataParallel  # noqa: PLC0415
    from torch.utils.data import DataLoader, DistributedSampler, Subset  # noqa: PLC0415
    from torchvision import datasets, models, transforms  # noqa: PLC0415

    torch.set_num_threads(1)
    if RANKS > 1:
        dist.init_process_group("gloo")
    transform = transforms.Compose(
        [
            transforms.Resize(32),
            transforms.RandomCrop(32, padding=4),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    images = datasets.ImageFolder(root / "train", transform)
    chosen = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:limit]
    subset = Subset(images, chosen.tolist())
    sampler: Any = DistributedSampler(subset) if RANKS > 1 else None
    loader: Any = DataLoader(
        subset, batch_size=BATCH, sampler=sampler, shuffle=sampler is None, num_workers=WORKERS
    )
    torch.manual_seed(0)
    model: Any = models.resnet18(num_classes=len(images.classes))
    model = DistributedDataParallel(model) if RANKS > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9, weight_decay=5e-4)
    loss_of = torch.nn.CrossEntropyLoss()
    model.train()
    for number in range(2):
        if sampler is not None:
            sampler.set_epoch(number)
            dist.barrier()
        ends = [time.perf_counter()]
        first = 0.0
        for inputs, labels in loader:
            first = first or time.perf_counter() - ends[0]
            loss = loss_of(model(inputs), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            ends.append(time.perf_counter())
        epoch = time.perf_counter() - ends[0]
    steps = [after - before for before, after in itertools.pairwise(ends[1:])]
    return {"epoch": epoch, "first": first, "step": median(steps)}


def our_epochs(root: Path, limit: int) -> Times:
    """Train a warm-up and a timed epoch as a cell does; return the times on this rank."""
    import torch  # noqa: PLC0415

    from hpml_jobs.core.cell import Cell  # noqa: PLC0415
    from hpml_jobs.core.measurements import Role  # noqa: PLC0415
    from hpml_jobs.core.strategies import Device, Strategy  # noqa: PLC0415
    from hpml_jobs.core.workload import Workload  # noqa: PLC0415
    from hpml_jobs.worker.epochs import train_epoch  # noqa: PLC0415
    from hpml_jobs.worker.process_group import read_placement  # noqa: PLC0415
    from hpml_jobs.worker.strategies import STRATEGIES  # noqa: PLC0415
    from hpml_jobs.worker.training import make_training  # noqa: PLC0415

    torch.set_num_threads(1)
    classes = len([path for path in (root / "train").iterdir() if path.is_dir()])
    workload = Workload(
        name="resnet18", model="resnet18", data="folder", images=limit, limit=limit, classes=classes
    )
    name = Strategy.DDP if RANKS > 1 else Strategy.SINGLE
    cell = Cell(
        gpus=RANKS,
        batch=BATCH,
        strategy=name,
        workload=workload,
        device=Device.CPU,
        loader_workers=WORKERS,
    )
    strategy = STRATEGIES[name](cell, read_placement(cell), (torch.device("cpu"),))
    strategy.setup(timedelta(minutes=5))
    training = make_training(cell, strategy, root)
    train_epoch(training, 0, Role.WARMUP)
    result = train_epoch(training, 1, Role.TIMED)
    times = result.times
    return {
        "epoch": result.epoch.epoch_s,
        "first": float(times.stall_s[0]),
        "step": median(times.step_s[1:].tolist()),
    }


def write_digits(root: Path) -> None:
    """Write scikit-learn's digits as JPEG files, enlarged to 32x32."""
    import numpy as np  # noqa: PLC0415
    from PIL import Image  # noqa: PLC0415
    from sklearn.datasets import load_digits  # noqa: PLC0415

    digits = load_digits()
    for number, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        folder = root / "train" / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray((pixels * 15.9).astype(np.uint8)).resize((32, 32))
        image.convert("RGB").save(folder / f"{number:04}.jpg")


def launch(which: str, ranks: int, root: Path, limit: int) -> Times:
    """Run one of the two loops in new processes; return the slowest rank's times."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    launcher = [*torchrun, f"--nproc-per-node={ranks}"] if ranks > 1 else []
    with tempfile.TemporaryDirectory() as folder:
        words = ["--as-rank", which, "--out", folder, "--images", str(root), "--limit", str(limit)]
        subprocess.run(
            [sys.executable, *launcher, __file__, *words],
            env=os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        of_ranks = [json.loads(path.read_text()) for path in Path(folder).iterdir()]
    return {name: max(times[name] for times in of_ranks) for name in of_ranks[0]}


def run_rank(which: str, root: Path, limit: int, out: Path) -> None:
    """Run one rank of one launch and write its times."""
    times = bare_epochs(root, limit) if which == "bare" else our_epochs(root, limit)
    path = out / os.environ.get("RANK", "0")
    path.write_text(json.dumps(times))
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may abort a process that tears down


def with_interval(values: list[float]) -> str:
    """Return the median and its interval as text."""
    from hpml_jobs.report.merge.statistics import interval  # noqa: PLC0415

    bounds = interval(values)
    return f"{median(values):.3f}" + (f" [{bounds.low:.3f}, {bounds.high:.3f}]" if bounds else "")


def compare(ranks: int, pairs: int, root: Path, limit: int) -> None:
    """Run the pairs of one number of ranks and print their line."""
    launches: dict[str, list[Times]] = {"bare": [], "ours": []}
    for number in range(pairs):
        for which in ("bare", "ours")[:: 1 if number % 2 else -1]:
            launches[which].append(launch(which, ranks, root, limit))
    texts = []
    for name in ("epoch", "step"):
        both = zip(launches["ours"], launches["bare"], strict=True)
        texts.append(with_interval([ours[name] / bare[name] for ours, bare in both]))
    firsts = (median(times["first"] for times in launches[which]) for which in launches)
    waits = " / ".join(f"{1e3 * first:.0f}" for first in firsts)
    best = min(t["epoch"] for t in launches["ours"]) / min(t["epoch"] for t in launches["bare"])
    print(f"{ranks:5} {texts[0]:>22} {best:14.3f} {texts[1]:>22} {waits:>22}", flush=True)


def main() -> None:
    """Run the pairs for every number of ranks and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=Path)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--limit", type=int, default=512)
    parser.add_argument("--as-rank", choices=("bare", "ours"), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_rank:
        run_rank(options.as_rank, options.images, options.limit, options.out)
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        root = options.images or Path(folder)
        if options.images is None:
            write_digits(root)
        print(f"{options.pairs} pairs on {cores} cores; batch {BATCH}, {options.limit} images")
        columns = ("epoch, ours / bare", "ratio of minima", "median step", "first batch, ms b / o")
        print(f"ranks {columns[0]:>22} {columns[1]:>14} {columns[2]:>22} {columns[3]:>22}")
        for ranks in options.ranks:
            if ranks > cores:
                print(f"{ranks} ranks on {cores} cores would measure the scheduler: skipped")
            else:
                compare(ranks, options.pairs, root, options.limit)


if __name__ == "__main__":
    main()
