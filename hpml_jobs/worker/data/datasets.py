"""The data sets: training and test images of a workload, counted, cut to `limit`, and loaded."""

import random
import sys
from collections.abc import Callable, Sized
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Subset, default_collate

from hpml_jobs.core.cell import Cell, Device
from hpml_jobs.core.processes import die_with_parent
from hpml_jobs.core.workload import Workload
from hpml_jobs.errors import HpmlError
from hpml_jobs.worker.data import user_code as own_code
from hpml_jobs.worker.data.images import DigitImages, SyntheticImages, test_view, training_view
from hpml_jobs.worker.data.sampling import Noted

Images = Dataset[Any]
Loader = DataLoader[Any]
Opener = Callable[[Workload, Path], tuple[Images, Images | None]]


class Data(NamedTuple):
    """A workload's images after `limit`; `found` is the number of training images before it."""

    train: Images
    test: Images | None
    found: int


def open_data(workload: Workload, root: Path) -> Data:
    """Open the workload's data set.

    Raises:
        HpmlError: it is not there, is not what it should be, or `limit` is more than there is.
    """
    if ":" in workload.data:
        opener: Opener = _own
    elif workload.data in SOURCES:
        opener = SOURCES[workload.data].open
    else:
        names = ", ".join(SOURCES)
        raise HpmlError(
            f"workload.data={workload.data}: there are {names}, or your own pkg.mod:dataset"
        )
    train, test = opener(workload, root)
    found = length(train)
    if found == 0:
        raise HpmlError(f"workload.data={workload.data} has no training images")
    limit = workload.limit
    if limit is None or limit >= found:
        return Data(train, test, found)
    if limit < 1:
        raise HpmlError(f"workload.limit={limit}: must be 1 or more")
    few = max(1, limit // 5)
    return Data(_some(train, limit), None if test is None else _some(test, few), found)


def fetch(workload: Workload, root: Path) -> None:
    """Download what the workload needs, where there is something to download; says what.

    Raises:
        HpmlError: the download failed.
    """
    source = SOURCES.get(workload.data)
    if source is not None and source.fetch is not None:
        source.fetch(root)


def _fetch_cifar10(root: Path) -> None:
    from torchvision.datasets import CIFAR10  # noqa: PLC0415 -- a second to import

    sys.stderr.write(f"fetching CIFAR-10 from {CIFAR10.url} into {root}\n")
    try:
        CIFAR10(root, download=True)
    except Exception as fault:  # network, disk, archive or checksum: each raises its own
        raise HpmlError(f"CIFAR-10 could not be fetched from {CIFAR10.url}: {fault}") from fault


def check_length(workload: Workload, data: Data) -> None:
    """Refuse a data set of another size than the cell was submitted with."""
    if workload.images is None:
        raise HpmlError("workload.images is not known: count them before submission (prepare)")
    if length(data.train) != workload.images:
        raise HpmlError(
            f"workload.data={workload.data} has {length(data.train)} training images here, "
            f"the cell was submitted with {workload.images}"
        )


def first(images: Images, number: int) -> Any:
    """A batch of the first images, as the loader would make it."""
    return default_collate([images[index] for index in range(min(number, length(images)))])


def share(images: Images, rank: int, processes: int) -> Images:
    """Every so-manieth image, from the rank's on: shares are disjoint, and together all images."""
    return Subset(images, range(rank, length(images), processes))


def length(images: Images) -> int:
    """Images in a data set."""
    return len(sized(images))


def sized(images: Images) -> Sized:
    """A data set as what has a length; `open_data` has seen to it."""
    return cast(Sized, images)


def _some(images: Images, limit: int) -> Images:
    """At most `limit` images, drawn without regard to order, the same in every process and cell."""
    drawn = torch.randperm(length(images), generator=torch.Generator().manual_seed(0))[:limit]
    return Subset(images, drawn.tolist())


def _cifar10(_workload: Workload, root: Path) -> tuple[Images, Images]:
    from torchvision.datasets import CIFAR10  # noqa: PLC0415 -- a second to import

    try:
        train = CIFAR10(root, train=True, transform=training_view(32))
        test = CIFAR10(root, train=False, transform=test_view(32))
    except RuntimeError as fault:  # missing, or not the files that torchvision's checksums name
        raise HpmlError(
            f"CIFAR-10 is not in {root}, or is damaged: fetch it once, where the internet is, "
            f"with: hpml-jobs fetch data.root={root}"
        ) from fault
    return train, test


def _folder(workload: Workload, root: Path) -> tuple[Images, Images | None]:
    """ImageFolder: root/train/<class>/*, and root/test or root/val if there is one."""
    from torchvision.datasets import ImageFolder  # noqa: PLC0415 -- a second to import

    size = workload.image_size
    try:
        train = ImageFolder(root / "train", transform=training_view(size))
        held = next((root / name for name in ("test", "val") if (root / name).is_dir()), None)
        test = None if held is None else ImageFolder(held, transform=test_view(size))
    except OSError as fault:
        raise HpmlError(
            f"workload.data=folder: {root} must hold train/<class>/<image>: {fault}"
        ) from fault
    for part in (train, test):
        if part is not None and len(part.classes) != workload.classes:
            raise HpmlError(
                f"{part.root} has {len(part.classes)} classes, "
                f"workload.classes says {workload.classes}"
            )
    return train, test


def _digits(workload: Workload, _root: Path) -> tuple[Images, Images]:
    if workload.image_size != 32:
        raise HpmlError(f"workload.image_size={workload.image_size}: digits are 32x32")
    return DigitImages(train=True), DigitImages(train=False)


def _synthetic(workload: Workload, _root: Path) -> tuple[Images, Images]:
    number = workload.images
    if number is None:
        raise HpmlError(
            "workload.data=synthetic makes as many images as asked for: workload.images=N"
        )
    size, classes = workload.image_size, workload.classes
    return SyntheticImages(number, size, classes), SyntheticImages(
        max(1, number // 5), size, classes
    )


class Source(NamedTuple):
    """How a data set of core.workload.DATASETS is opened, and downloaded where it has to be."""

    open: Opener
    fetch: Callable[[Path], None] | None = None


SOURCES = {
    "cifar10": Source(_cifar10, _fetch_cifar10),
    "folder": Source(_folder),
    "digits": Source(_digits),
    "synthetic": Source(_synthetic),
}


def _own(workload: Workload, root: Path) -> tuple[Images, Images | None]:
    function = own_code.load("workload.data", workload.data)
    train, test = (own_code.call(function, part, root=root) for part in (True, False))
    for part in (train, [] if test is None else test):  # an epoch needs a known length
        if not hasattr(part, "__getitem__") or not hasattr(part, "__len__"):
            raise HpmlError(
                f"workload.data={workload.data} returned {type(part).__name__}: "
                "a data set has __len__ and __getitem__"
            )
    return train, test


def train_loader(images: Images, batch: int, cell: Cell, order: Noted) -> Loader:
    """Batches of one epoch in the order drawn, the partial last one included."""
    return DataLoader(
        images,
        batch_size=batch,
        sampler=order,
        num_workers=cell.loader_workers,
        pin_memory=cell.device is Device.CUDA,
        worker_init_fn=die_with_parent,
    )


def test_loader(images: Images, cell: Cell) -> Loader:
    """All these images in order; which random numbers training draws later does not change."""
    return DataLoader(
        images,
        generator=torch.Generator(),
        batch_size=cell.workload.test_batch,
        num_workers=cell.loader_workers,
        pin_memory=cell.device is Device.CUDA,
        worker_init_fn=die_with_parent,
    )


def seed_everything(seed: int) -> None:
    """Seed torch (all devices), numpy and Python; DataLoader workers seed theirs from torch's."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)
