"""The timed epoch compared with a bare loop: fresh launches in turn, on a folder of images.

    python tests/benchmarks/timed_epoch.py [--images FOLDER] [--pairs 20] [--ranks 1 2]
        [--limit 512] [--device cpu|cuda] [--batch 32] [--workers 2] [--model resnet18] [--ddp]
        [--json FILE]

FOLDER holds train/<class>/<image>; without it, one of JPEG images of scikit-learn's digits is made.
A pair is one launch of a loop in plain PyTorch and one of ours, in alternating order: the same
model, images, augmentation, loader, sampler, batch and threads; DDP (gloo, with CUDA NCCL) from two
ranks on, with --ddp also with one. Ours is a cell as its job runs it: the wrapper, the worker, the
record. Each launch runs a warm-up epoch and a timed one. The table shows the median of the ratios
with an interval that contains the true median with at least 95 % (order statistics), and the same
ratio for the wait for the first batch and for the median iteration. Never more ranks than cores, or
than GPUs.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

# Nothing of hpml_jobs, and no torch, is imported here: the bare loop must not contain it.

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)

Times = dict[str, float]
"""Seconds of the timed epoch: `epoch`, `first` batch, median `step` without its first."""


def bare_epochs(options: argparse.Namespace) -> Times:
    """Train two epochs in plain PyTorch; return the times of the second on this rank."""
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415
    from torch.nn.parallel import DistributedDataParallel  # noqa: PLC0415
    from torch.utils.data import DataLoader, DistributedSampler, Subset  # noqa: PLC0415
    from torchvision import datasets, models, transforms  # noqa: PLC0415

    torch.set_num_threads(1)
    device, on_cuda = torch.device(options.device), options.device == "cuda"
    if on_cuda:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
    if options.ddp:
        dist.init_process_group("nccl" if on_cuda else "gloo")
    transform = transforms.Compose(
        [
            transforms.Resize(32),
            transforms.RandomCrop(32, padding=4),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    images = datasets.ImageFolder(options.images / "train", transform)
    generator = torch.Generator().manual_seed(0)
    chosen = torch.randperm(len(images), generator=generator)[: options.limit]
    subset = Subset(images, chosen.tolist())
    sampler: Any = DistributedSampler(subset) if options.ddp else None
    loader: Any = DataLoader(
        subset,
        batch_size=options.batch,
        sampler=sampler,
        shuffle=sampler is None,
        num_workers=options.workers,
        pin_memory=on_cuda,
        persistent_workers=options.workers > 0,
    )
    torch.manual_seed(0)
    model: Any = models.resnet18(num_classes=len(images.classes))
    if options.model == "resnet18_cifar":  # the stem for small images
        model.conv1 = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False)
        model.maxpool = torch.nn.Identity()
    model = model.to(device)
    if options.ddp:
        model = DistributedDataParallel(model, device_ids=[device] if on_cuda else None)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9, weight_decay=5e-4)
    loss_of = torch.nn.CrossEntropyLoss()
    model.train()
    for number in range(2):
        if sampler is not None:
            sampler.set_epoch(number)
            dist.barrier()
        if on_cuda:
            torch.cuda.synchronize()
        ends = [time.perf_counter()]
        first = 0.0
        for inputs, labels in loader:
            first = first or time.perf_counter() - ends[0]
            outputs = model(inputs.to(device, non_blocking=True))
            loss = loss_of(outputs, labels.to(device, non_blocking=True))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            ends.append(time.perf_counter())
        if on_cuda:
            torch.cuda.synchronize()
        epoch = time.perf_counter() - ends[0]
    steps = [after - before for before, after in itertools.pairwise(ends[1:])]
    return {"epoch": epoch, "first": first, "step": median(steps)}


def our_cell(options: argparse.Namespace, ranks: int) -> Any:
    """Return the cell that does the same as the bare loop."""
    from hpml_jobs.core.cell import Cell, Protocol  # noqa: PLC0415
    from hpml_jobs.core.strategies import Device, Strategy  # noqa: PLC0415
    from hpml_jobs.core.workload import Workload  # noqa: PLC0415

    classes = len(
        [path for path in (options.images / "train").iterdir() if path.is_dir()]
    )
    return Cell(
        gpus=ranks,
        batch=options.batch,
        strategy=Strategy.DDP if options.ddp else Strategy.SINGLE,
        workload=Workload(
            name=options.model,
            model=options.model,
            data="folder",
            images=options.limit,
            limit=options.limit,
            classes=classes,
        ),
        device=Device(options.device),
        loader_workers=options.workers,
        protocol=Protocol.LAB,
        epochs=2,
    )


def job_epochs(options: argparse.Namespace, ranks: int) -> Times:
    """Run the cell through its job's wrapper; return the times of its record."""
    from jobs import run_job  # noqa: PLC0415

    record = run_job(our_cell(options, ranks), options.images)
    timed = [rank.timed for rank in record.ranks]
    return {
        "epoch": record.epoch_s,
        "first": max(epoch.stalls.first_s for epoch in timed if epoch.stalls),
        "step": max(epoch.steps.median_s for epoch in timed if epoch.steps),
    }


def launch_bare(options: argparse.Namespace, ranks: int) -> Times:
    """Run the bare loop in new processes; return the slowest rank's times."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    launcher = [*torchrun, f"--nproc-per-node={ranks}"] if options.ddp else []
    with tempfile.TemporaryDirectory() as folder:
        words = [*sys.argv[1:], "--out", folder]
        words += ["--images", str(options.images), *(["--ddp"] if options.ddp else [])]
        subprocess.run(
            [sys.executable, *launcher, __file__, *words],
            env=os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        of_ranks = [json.loads(path.read_text()) for path in Path(folder).iterdir()]
    return {name: max(times[name] for times in of_ranks) for name in of_ranks[0]}


def run_rank(options: argparse.Namespace) -> None:
    """Run one rank of one launch and write its times."""
    times = bare_epochs(options)
    path = options.out / os.environ.get("RANK", "0")
    path.write_text(json.dumps(times))
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may abort a process that tears down


def with_interval(values: list[float]) -> str:
    """Return the median and its interval as text."""
    from tests.benchmarks import intervals  # noqa: PLC0415

    return intervals.with_interval(values)


def compare(ranks: int, options: argparse.Namespace) -> list[float]:
    """Run the pairs of one number of ranks and print their line; return the epochs' ratios."""
    bare: list[Times] = []
    ours: list[Times] = []
    loops = [(bare, launch_bare), (ours, job_epochs)]
    for number in range(options.pairs):
        for times, launch in loops[:: 1 if number % 2 else -1]:
            times.append(launch(options, ranks))
    ratios = {
        name: [our[name] / their[name] for our, their in zip(ours, bare, strict=True)]
        for name in ("epoch", "step")
    }
    texts = {name: with_interval(values) for name, values in ratios.items()}
    waits = " / ".join(
        f"{1e3 * median(t['first'] for t in times):.0f}" for times in (bare, ours)
    )
    best = min(times["epoch"] for times in ours) / min(times["epoch"] for times in bare)
    line = (
        f"{ranks:5} {texts['epoch']:>22} {best:14.3f} {texts['step']:>22} {waits:>22}"
    )
    print(line, flush=True)
    return ratios["epoch"]


def parse_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=Path)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--limit", type=int, default=512)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--model", choices=("resnet18", "resnet18_cifar"), default="resnet18"
    )
    parser.add_argument("--ddp", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def number_of_places(device: str) -> int:
    """Return the cores or the GPUs of this machine."""
    if device == "cpu":
        return len(os.sched_getaffinity(0))
    import torch  # noqa: PLC0415

    return torch.cuda.device_count()


def main() -> None:
    """Run the pairs for every number of ranks and print the table."""
    options = parse_options()
    if options.out:
        run_rank(options)
        return
    places = number_of_places(options.device)
    unit = "cores" if options.device == "cpu" else "GPU(s)"
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        if options.images is None:
            from jobs import write_digits  # noqa: PLC0415

            options.images = Path(folder)
            write_digits(options.images, max(options.limit, 1_797))
        about = f"batch {options.batch}, {options.limit} images"
        print(f"{options.pairs} pairs on {places} {unit}; {about}")
        columns = (
            "epoch, ours / bare",
            "ratio of minima",
            "median step",
            "first batch, ms b / o",
        )
        print(
            f"ranks {columns[0]:>22} {columns[1]:>14} {columns[2]:>22} {columns[3]:>22}"
        )
        always_ddp = options.ddp
        for ranks in options.ranks:
            if ranks > places:
                print(
                    f"{ranks} ranks on {places} {unit} would measure the scheduler: skipped"
                )
                continue
            options.ddp = always_ddp or ranks > 1
            ratios = compare(ranks, options)
            key = f"{'ddp' if options.ddp else 'single'}_job"
            figures[key] = {"value": median(ratios), "note": with_interval(ratios)}
    if options.json:
        options.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
