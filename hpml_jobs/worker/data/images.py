"""Image transforms of the lab, and the data sets digits and synthetic."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate, pad
from torch.utils.data import Dataset

from hpml_jobs.core.built_in import DATASETS
from hpml_jobs.core.errors import HpmlError

MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2023, 0.1994, 0.2010)
"""Mean and standard deviation per channel of CIFAR-10's training images."""

PADDING = 4
"""Border of zeros around an image, in pixels, in which its random crop lies."""

DIGITS_HELD_OUT = 297
DIGITS_PRESENTATIONS = DATASETS["digits"].images or 0
"""Images of an epoch of digits: 10 iterations with batch 512 on 4 processes."""

DIGITS_MEAN, DIGITS_STD = 0.2936, 0.3215
"""Mean and standard deviation of the enlarged digits' pixels (0 to 1)."""

MAX_SHIFT = 2
"""Digits are shifted by up to this many pixels in each direction."""

DISTINCT_IMAGES = 256
"""Synthetic images that differ; they repeat, so that loading them costs almost nothing."""


class ResizeAndCrop:
    """Scale the shorter side to `size` and crop the center; no change if the size is right."""

    def __init__(self, size: int) -> None:
        from torchvision.transforms import CenterCrop, Compose, Resize  # noqa: PLC0415

        self._size = (size, size)
        self._transform = Compose([Resize(size), CenterCrop(size)])

    def __call__(self, image: Any) -> Any:
        """Return a PIL image of size x size."""
        return image if image.size == self._size else self._transform(image)


def training_transform(size: int) -> Any:
    """Return random crop (padding 4), flip (p = 0.5), normalization: PIL to (3, size, size)."""
    from torchvision import transforms  # noqa: PLC0415 -- a second to import

    augmentation = [
        transforms.RandomCrop(size, padding=PADDING),
        transforms.RandomHorizontalFlip(),
    ]
    return transforms.Compose(
        [
            ResizeAndCrop(size),
            *augmentation,
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )


def test_transform(size: int) -> Any:
    """Return normalization only: PIL to (3, size, size)."""
    from torchvision import transforms  # noqa: PLC0415 -- a second to import

    return transforms.Compose(
        [ResizeAndCrop(size), transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    )


class Transform(NamedTuple):
    """What is done to a batch of images: random crop and flip, conversion, normalization.

    `padding` is the border of zeros, in pixels, in which the crop lies. `divisor` converts pixels
    to float32 fractions of it; None leaves them as they are. `mean` and `std` are per channel;
    without them nothing is normalized.
    """

    padding: int = 0
    flip: bool = False
    divisor: float | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def constants(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return mean and std, each (channels, 1, 1), on the device where images are converted."""
        mean, std = (
            torch.tensor(values)[:, None, None] for values in (self.mean, self.std)
        )
        return mean.to(device), std.to(device)

    def converted(self, images: Tensor, constants: tuple[Tensor, Tensor]) -> Tensor:
        """Return images (n, channels, height, width) converted and normalized."""
        if self.divisor is not None:
            images = images.to(torch.float32).div_(self.divisor)
        if self.mean:
            mean, std = constants
            images = images.sub(mean).div_(std)
        return images


def photo_transform(*, train: bool) -> Transform:
    """Return `training_transform` or `test_transform` of images that have the right size."""
    whole = Transform(divisor=255.0, mean=MEAN, std=STD)
    return whole._replace(padding=PADDING, flip=True) if train else whole


def read_digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return pixels (1797, 64) from 0 to 16 and labels (1797,), as sklearn's `load_digits` does.

    They are read from scikit-learn's own file, because importing scikit-learn takes each process
    two seconds or more.

    Raises:
        HpmlError: scikit-learn is not installed.
    """
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise HpmlError(
            "workload.data=digits needs scikit-learn: install hpml-jobs[worker]"
        )
    path = Path(package.origin).parent / "datasets/data/digits.csv.gz"
    table = np.loadtxt(path, delimiter=",")
    pixels, labels = table[:, :-1], table[:, -1]
    return pixels, labels.astype(np.int64)


class DigitImages(Dataset[tuple[Tensor, int]]):
    """scikit-learn's 1,797 real 8x8 digits, enlarged to 3x32x32; 297 of them are the test set.

    A training epoch has 20,480 images: every digit about 14 times, each time shifted at random.
    `images`, `targets` and `transform` are those of `ImageTensors`.
    """

    def __init__(self, *, train: bool) -> None:
        pixels, labels = read_digits()
        order = np.random.default_rng(0).permutation(len(labels))
        indices = order[DIGITS_HELD_OUT:] if train else order[:DIGITS_HELD_OUT]
        values = torch.tensor(pixels[indices] / 16, dtype=torch.float32)
        small = values.reshape(-1, 1, 8, 8)
        large = interpolate(small, size=(32, 32), mode="bilinear", align_corners=False)
        self._train = train
        self._labels: list[int] = labels[indices].tolist()
        self.images = large.expand(-1, 3, -1, -1)
        self.targets = torch.tensor(self._labels)
        self.transform = Transform(
            padding=MAX_SHIFT if train else 0,
            mean=(DIGITS_MEAN,) * 3,
            std=(DIGITS_STD,) * 3,
        )
        # With a margin, so that a shifted image is a view and costs no computation.
        padded = (pad(large, (MAX_SHIFT,) * 4) - DIGITS_MEAN) / DIGITS_STD
        self._padded = padded.expand(-1, 3, -1, -1)

    def __len__(self) -> int:
        return DIGITS_PRESENTATIONS if self._train else len(self._labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = index % len(self._labels)
        down, right = (
            torch.randint(0, 2 * MAX_SHIFT + 1, (2,)).tolist()
            if self._train
            else (MAX_SHIFT, MAX_SHIFT)
        )
        return self._padded[
            image, :, down : down + 32, right : right + 32
        ], self._labels[image]


class SyntheticImages(Dataset[tuple[Tensor, int]]):
    """Seeded noise of any size, to measure training without the cost of reading data.

    `images`, `targets` and `transform` are those of `ImageTensors`.
    """

    transform = Transform()

    def __init__(self, number: int, size: int, classes: int) -> None:
        generator = torch.Generator().manual_seed(0)
        distinct = min(number, DISTINCT_IMAGES)
        self.images = torch.randn(distinct, 3, size, size, generator=generator)
        self.targets = torch.randint(classes, (distinct,), generator=generator)
        self._labels: list[int] = self.targets.tolist()
        self._number = number

    def __len__(self) -> int:
        return self._number

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = index % len(self._labels)
        return self.images[image], self._labels[image]
