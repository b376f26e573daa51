"""Images/s of cells on JPEG files, by number of loader workers, and of images on the device.

    python tests/benchmarks/loaders.py [--device cpu|cuda] [--workers 0 2 4 device] [--images 2048]
        [--folder FOLDER] [--model resnet18_cifar] [--batch 128] [--repeats 1] [--json FILE]

FOLDER holds train/<class>/<image>; without it, `--images` JPEG images of scikit-learn's digits are
made. Each line is a cell that its job runs (protocol=lab): samples / epoch, the share of the epoch
in which the device waits for a batch, the wait for the first batch, and the time from the last
iteration to the end of the loader. `device` is loader=device: all images are in the device's
memory. With several repeats the cells take turns, and the line has medians.
"""

import argparse
import json
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from jobs import run_job, write_digits

from hpml_jobs.core.cell import Cell, Protocol
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Device, Loader, Strategy
from hpml_jobs.core.workload import Workload

COLUMNS = ("rate", "stall", "first", "last")
"""Images/s, stall in percent, milliseconds at the beginning and at the end."""


def cell_of(source: str, options: argparse.Namespace, classes: int) -> Cell:
    """Return the cell of one line: `source` is a number of workers, or `device`."""
    workload = Workload(
        name="jpeg",
        model=options.model,
        data="folder",
        images=options.images,
        limit=options.images,
        classes=classes,
    )
    loading: dict[str, Any] = {"loader_workers": 0, "loader": Loader.DEVICE}
    if source != "device":
        loading = {"loader_workers": int(source)}
    return Cell(
        gpus=1,
        batch=options.batch,
        strategy=Strategy.SINGLE,
        workload=workload,
        device=Device(options.device),
        protocol=Protocol.LAB,
        epochs=2,
        **loading,
    )


def values_of(record: Record) -> dict[str, float]:
    """Return the values of a line."""
    timed = record.ranks[0].timed
    return {
        "rate": timed.samples / timed.epoch_s,
        "stall": 100 * timed.stall_s / timed.epoch_s,
        "first": 1e3 * timed.stalls.first_s,
        "last": 1e3 * timed.stalls.last_s,
    }


def measure(root: Path, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Run the cells in turn; return the medians of each line."""
    classes = len([path for path in (root / "train").iterdir() if path.is_dir()])
    runs: dict[str, list[dict[str, float]]] = {source: [] for source in options.workers}
    for number in range(options.repeats):
        for source in options.workers[:: -1 if number % 2 else 1]:
            runs[source].append(
                values_of(run_job(cell_of(source, options, classes), root))
            )
    return {
        source: {name: median(values[name] for values in lines) for name in COLUMNS}
        for source, lines in runs.items()
    }


def main() -> None:
    """Run the cells and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=[*Device], default="cpu")
    parser.add_argument("--workers", nargs="+", default=["0", "2", "4", "device"])
    parser.add_argument("--images", type=int, default=2_048)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--model", default="resnet18_cifar")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = options.folder or Path(name)
        if options.folder is None:
            write_digits(root, options.images)
        print(
            f"{options.model}, batch {options.batch}, {options.images} images, {options.device}"
        )
        print(
            f"{'workers':8} {'images/s':>10} {'stall %':>8} {'first, ms':>10} {'last, ms':>10}"
        )
        lines = measure(root, options)
    for source, line in lines.items():
        rate, stall, first, last = line.values()
        print(f"{source:8} {rate:10,.0f} {stall:8.1f} {first:10.1f} {last:10.1f}")
    if options.json:
        figures = {
            f"{name}_{source}": {"value": value}
            for source, line in lines.items()
            for name, value in line.items()
        }
        options.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
