"""The data sets: training and test images of a workload, cut to `limit`."""

import random
import sys
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch.utils.data import Dataset, Subset, default_collate

from hpml_jobs.core import data_files
from hpml_jobs.core.data_files import BYTE_DATA, TEXT
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.record import Text
from hpml_jobs.core.text_data import data_digest
from hpml_jobs.core.workload import Workload
from hpml_jobs.worker.data import user_code
from hpml_jobs.worker.data.images import (
    DigitImages,
    SyntheticImages,
    test_transform,
    training_transform,
)

Images = Dataset[Any]
Opener = Callable[[Workload, Path], tuple[Images, Images | None]]


class Data(NamedTuple):
    """A workload's images after `limit`; `total` is the number of training images before it."""

    train: Images
    test: Images | None
    total: int


def open_data(workload: Workload, root: Path) -> Data:
    """Open the workload's data set and cut it to `workload.limit` training images.

    Raises:
        HpmlError: it is missing or damaged, or does not fit the workload.
    """
    opener = _user_data if ":" in workload.data else SOURCES[workload.data]
    train, test = opener(workload, root)
    total = length(train)
    if total == 0:
        raise HpmlError(
            f"workload.data={workload.data} has no training {workload.samples_name}"
        )
    limit = workload.limit
    if limit is None or limit >= total:
        return Data(train, test, total)
    if limit < 1:
        raise HpmlError(f"workload.limit={limit}: must be 1 or more")
    test_limit = max(1, limit // 5)
    return Data(
        _random_subset(train, limit),
        None if test is None else _random_subset(test, test_limit),
        total,
    )


def fetch(workload: Workload, root: Path) -> None:
    """Download the workload's data set if it can be downloaded, and say so on stderr.

    Raises:
        HpmlError: the download failed.
    """
    if workload.data != "cifar10":
        return
    from torchvision.datasets import CIFAR10  # noqa: PLC0415 -- a second to import

    sys.stderr.write(f"downloading CIFAR-10 from {CIFAR10.url} into {root}\n")
    try:
        CIFAR10(root, download=True)
    except (
        Exception
    ) as error:  # network, disk, archive and checksum raise different types
        raise HpmlError(
            f"cannot download CIFAR-10 from {CIFAR10.url}: {error}"
        ) from error


def check_length(workload: Workload, data: Data) -> None:
    """Check that the data set has as many training images as at submission.

    Raises:
        HpmlError: it has more or fewer.
    """
    if workload.images is None:
        raise HpmlError(
            "workload.images is unknown: submit with hpml-jobs, which counts them"
        )
    if length(data.train) != workload.images:
        remedy = "check data.root="
        if workload.data == TEXT:
            remedy = "another Python has other text; submit with the Python of the jobs"
        raise HpmlError(
            f"workload.data={workload.data} has {length(data.train)} training "
            f"{workload.samples_name} here, but the cell was submitted with {workload.images}: "
            f"{remedy}"
        )


def first_batch(images: Images, number: int) -> Any:
    """Return a batch of the first `number` images, collated as the loader does it."""
    return default_collate(
        [images[index] for index in range(min(number, length(images)))]
    )


def tokens_of_input(samples: Images) -> int | None:
    """Return the length of the first input; None if it does not have one dimension."""
    item = samples[0]
    if not isinstance(item, tuple | list) or not item:
        return None
    shape: Sequence[int] = getattr(item[0], "shape", ())
    return int(shape[0]) if len(shape) == 1 else None


def length(images: Images) -> int:
    """Return the number of images in a data set."""
    return len(sized(images))


def sized(images: Images) -> Sized:
    """Return the data set with a type that has a length; `open_data` checks that it has one."""
    return cast(Sized, images)


def _random_subset(images: Images, limit: int) -> Images:
    """Return at most `limit` images, chosen at random, the same in every process and cell."""
    indices = torch.randperm(
        length(images), generator=torch.Generator().manual_seed(0)
    )[:limit]
    return Subset(images, indices.tolist())


def _cifar10(_workload: Workload, root: Path) -> tuple[Images, Images]:
    from torchvision.datasets import CIFAR10  # noqa: PLC0415 -- a second to import

    try:
        train = CIFAR10(root, train=True, transform=training_transform(32))
        test = CIFAR10(root, train=False, transform=test_transform(32))
    except RuntimeError as error:  # missing, or other checksums than torchvision's
        raise HpmlError(
            f"CIFAR-10 is missing or damaged in {root}: delete it there; the next submission "
            "downloads it"
        ) from error
    return train, test


def describe(workload: Workload, train: Images, test: Images | None) -> Text | None:
    """Return the facts of the text of a workload, after `data.limit`; None for other data."""
    if workload.data not in BYTE_DATA:
        return None
    from hpml_jobs.worker.data.text import describe_text  # noqa: PLC0415

    return describe_text(workload, train, test)


def check_unchanged(workload: Workload, root: Path) -> None:
    """Refuse to train on other files than those that the cell was submitted with.

    Raises:
        HpmlError: the folder changed since then.
    """
    if workload.data_sha256 not in (None, data_digest(workload.data, root)):
        raise HpmlError(
            f"the files in data.root={root} changed since submission: submit again (changed data "
            "are new cells), or restore them and use resubmit"
        )


def _digits(workload: Workload, _root: Path) -> tuple[Images, Images]:
    if workload.image_size != 32:
        raise HpmlError(
            f"workload.image_size={workload.image_size}: digits are 32x32, use 32"
        )
    return DigitImages(train=True), DigitImages(train=False)


def _synthetic(workload: Workload, _root: Path) -> tuple[Images, Images]:
    number = workload.images
    if number is None:
        raise HpmlError(
            "workload.data=synthetic needs a number of images: set workload.images=N"
        )
    size, classes = workload.image_size, workload.classes
    return SyntheticImages(number, size, classes), SyntheticImages(
        max(1, number // 5), size, classes
    )


def _folder(workload: Workload, root: Path) -> tuple[Images, Images | None]:
    from hpml_jobs.worker.data.image_folders import open_folder  # noqa: PLC0415

    return open_folder(workload, root)


def _text(workload: Workload, root: Path) -> tuple[Images, Images | None]:
    from hpml_jobs.worker.data.text import open_text  # noqa: PLC0415

    return open_text(workload, root)


def _tokens(workload: Workload, root: Path) -> tuple[Images, Images | None]:
    from hpml_jobs.worker.data.text import open_tokens  # noqa: PLC0415

    return open_tokens(workload, root)


SOURCES: dict[str, Opener] = {
    "cifar10": _cifar10,
    "digits": _digits,
    "synthetic": _synthetic,
    data_files.IMAGE_FOLDER: _folder,
    data_files.TEXT: _text,
    data_files.FOLDER: _text,
    data_files.TOKENS: _tokens,
}
"""How to open the data sets of core.built_in.DATASETS."""


def _user_data(workload: Workload, root: Path) -> tuple[Images, Images | None]:
    function = user_code.load("workload.data", workload.data)
    train, test = (
        user_code.call(function, part, root=root, **workload.sizes, **workload.args)
        for part in (True, False)
    )
    for part in (train, [] if test is None else test):
        if not hasattr(part, "__getitem__") or not hasattr(part, "__len__"):
            raise HpmlError(
                f"workload.data={workload.data} returned {type(part).__name__}, which has no "
                "__len__ or no __getitem__: return a map-style data set"
            )
    return train, test


def seed_everything(seed: int) -> None:
    """Seed torch (all devices), numpy and Python; DataLoader workers are seeded from torch's."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


@contextmanager
def preserved_random_state(gpus: Sequence[torch.device] = ()) -> Iterator[None]:
    """Restore the random state of Python, numpy and torch at the end of the block."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=gpus):
        yield
    random.setstate(python_state)
    np.random.set_state(numpy_state)
