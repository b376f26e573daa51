"""What an image is before it reaches the model: LAB's views, digits and synthetic images."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate, pad
from torch.utils.data import Dataset

from hpml_jobs.core.workload import DATASETS
from hpml_jobs.errors import HpmlError

MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2023, 0.1994, 0.2010)
"""Of CIFAR-10's training images, by channel."""

DIGITS_HELD_OUT = 297
DIGITS_PRESENTATIONS = DATASETS["digits"].images or 0
"""An epoch of digits: 10 iterations at batch 512 on 4 processes."""

DIGITS_MEAN, DIGITS_STD = 0.2936, 0.3215
"""Of the enlarged digits' pixels, 0 to 1."""

SHIFT = 2
"""Digits are shifted by up to this many pixels, up, down, left or right."""

BANK = 256
"""Synthetic images that are really different; they repeat, so that making them costs nothing."""


class Fit:
    """Any image as size x size: shorter side scaled, centre cut; untouched where it fits."""

    def __init__(self, size: int) -> None:
        from torchvision.transforms import CenterCrop, Compose, Resize  # noqa: PLC0415

        self._size = (size, size)
        self._change = Compose([Resize(size), CenterCrop(size)])

    def __call__(self, image: Any) -> Any:
        """A PIL image to a PIL image."""
        return image if image.size == self._size else self._change(image)


def training_view(size: int) -> Any:
    """Random crop (padding 4), flip with p = 0.5, normalised: a PIL image to (3, size, size)."""
    from torchvision import transforms  # noqa: PLC0415 -- a second to import

    steps = [transforms.RandomCrop(size, padding=4), transforms.RandomHorizontalFlip()]
    return transforms.Compose(
        [Fit(size), *steps, transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    )


def test_view(size: int) -> Any:
    """Normalised only: a PIL image to (3, size, size)."""
    from torchvision import transforms  # noqa: PLC0415 -- a second to import

    return transforms.Compose([Fit(size), transforms.ToTensor(), transforms.Normalize(MEAN, STD)])


def read_digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """What `sklearn.datasets.load_digits` returns: pixels (1797, 64) of 0 to 16, and labels.

    Read from scikit-learn's own file: importing scikit-learn takes every process two seconds or
    more, which four processes on two cores would spend before each cell.
    """
    found = find_spec("sklearn")
    if found is None or found.origin is None:
        raise HpmlError("workload.data=digits needs scikit-learn: install hpml-jobs[worker]")
    table = np.loadtxt(Path(found.origin).parent / "datasets/data/digits.csv.gz", delimiter=",")
    return table[:, :-1], table[:, -1].astype(np.int64)


class DigitImages(Dataset[tuple[Tensor, int]]):
    """scikit-learn's 1,797 real 8x8 digits, enlarged to 3x32x32; 297 of them held out for testing.

    A training epoch is 20,480 presentations: every image about 14 times, shifted at random.
    """

    def __init__(self, *, train: bool) -> None:
        pixels, labels = read_digits()
        order = np.random.default_rng(0).permutation(len(labels))
        chosen = order[DIGITS_HELD_OUT:] if train else order[:DIGITS_HELD_OUT]
        small = torch.tensor(pixels[chosen] / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
        large = interpolate(small, size=(32, 32), mode="bilinear", align_corners=False)
        self._train = train
        self._labels: list[int] = labels[chosen].tolist()
        # With a margin: a shifted image is a view into it, nothing is computed per presentation.
        padded = (pad(large, (SHIFT,) * 4) - DIGITS_MEAN) / DIGITS_STD
        self._padded = padded.expand(-1, 3, -1, -1)

    @property
    def real_images(self) -> int:
        """Different images behind the presentations."""
        return len(self._labels)

    def __len__(self) -> int:
        return DIGITS_PRESENTATIONS if self._train else len(self._labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = index % len(self._labels)
        down, right = (
            torch.randint(0, 2 * SHIFT + 1, (2,)).tolist() if self._train else (SHIFT, SHIFT)
        )
        return self._padded[image, :, down : down + 32, right : right + 32], self._labels[image]


class SyntheticImages(Dataset[tuple[Tensor, int]]):
    """Seeded noise of any size: what a cell takes when reading data costs nothing."""

    def __init__(self, number: int, size: int, classes: int) -> None:
        generator = torch.Generator().manual_seed(0)
        different = min(number, BANK)
        self._images = torch.randn(different, 3, size, size, generator=generator)
        self._labels = torch.randint(classes, (different,), generator=generator).tolist()
        self._number = number

    def __len__(self) -> int:
        return self._number

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = index % len(self._labels)
        return self._images[image], self._labels[image]
