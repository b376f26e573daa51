"""A folder of images as a data set: torchvision's, with the file's name in every error."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchvision.datasets import ImageFolder

from hpml_jobs.core.data_files import TRAIN, images_of, test_folder
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.text import counted
from hpml_jobs.core.workload import Workload
from hpml_jobs.worker.data.images import (
    ResizeAndCrop,
    test_transform,
    training_transform,
)


class ImageFiles(ImageFolder):  # type: ignore[misc]  # torchvision has no types
    """The images of folder/CLASS/**, in ImageFolder's order; links that loop are not followed.

    `shape` is that of an image of the right size: channels, height, width.
    """

    def __init__(self, root: Path, folder: Path, transform: Any, size: int) -> None:
        super().__init__(folder, transform=transform)
        self._data_root = root
        self._resize = ResizeAndCrop(size)
        self.shape = (3, size, size)

    @staticmethod
    def make_dataset(
        directory: str | Path, class_to_idx: dict[str, int], *_: Any, **__: Any
    ) -> list[tuple[str, int]]:
        """Return the path and the label of every image.

        Raises:
            FileNotFoundError: a class has none.
        """
        samples = []
        for name in sorted(class_to_idx):
            files = images_of(Path(directory) / name)
            if not files:
                raise FileNotFoundError(f"no images in {Path(directory) / name}")
            samples += [(str(file), class_to_idx[name]) for file in files]
        return samples

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        """Return an image and its label.

        Raises:
            HpmlError: the file cannot be read; the message names it.
        """
        with self._named(index):
            image, label = super().__getitem__(index)
        return image, label

    def read(self, numbers: Sequence[int]) -> Tensor:
        """Return the pixels of some images as uint8 (n, 3, size, size), without augmentation.

        Raises:
            HpmlError: a file cannot be read; the message names it.
        """
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            return torch.stack(list(pool.map(self._pixels, numbers)))

    def _pixels(self, index: int) -> Tensor:
        with self._named(index):
            image = self._resize(self.loader(self.samples[index][0]))
            return torch.from_numpy(np.array(image)).permute(2, 0, 1)

    @contextmanager
    def _named(self, index: int) -> Iterator[None]:
        """Name the file of an image in the errors of the block."""
        try:
            yield
        except MemoryError:
            raise
        except (
            Exception
        ) as error:  # Pillow's readers raise many types for a damaged file
            file = Path(self.samples[index][0]).relative_to(self._data_root)
            reason = (
                f"{type(error).__name__}: {error}"
                if str(error)
                else type(error).__name__
            )
            raise HpmlError(
                f"{file}: {reason} (data.root={self._data_root})"
            ) from error


def open_folder(
    workload: Workload, root: Path
) -> tuple["ImageFiles", "ImageFiles | None"]:
    """Open root/train/<class>/*, and root/test or root/val if one of them exists.

    Raises:
        HpmlError: it is not such a folder, or its classes are others than at submission.
    """
    size = workload.image_size
    try:
        train = ImageFiles(root, root / TRAIN, training_transform(size), size)
        folder = test_folder(root)
        test = (
            None
            if folder is None
            else ImageFiles(root, folder, test_transform(size), size)
        )
    except OSError as error:
        raise HpmlError(
            f"workload.data=folder: {root} must contain train/<class>/<image>: {error}"
        ) from error
    if len(train.classes) != workload.classes:
        raise HpmlError(
            f"{train.root} has {counted(len(train.classes), 'class', 'classes')}, but "
            f"workload.classes is {workload.classes}: submit again; the folder has changed"
        )
    if test is not None and test.classes != train.classes:
        raise HpmlError(
            f"{test.root} has {counted(len(test.classes), 'class', 'classes')} and {train.root} "
            f"has {len(train.classes)}: they must be the same"
        )
    return train, test
