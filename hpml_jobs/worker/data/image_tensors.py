"""Data sets as tensors, for loader=device: their images before augmentation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset

from hpml_jobs.core.built_in import TOKEN_DATA
from hpml_jobs.core.workload import Workload
from hpml_jobs.errors import HpmlError
from hpml_jobs.worker.data.datasets import Data, Images, length
from hpml_jobs.worker.data.images import Transform, photo_transform

ACCEPTED = (
    "return a torch.utils.data.TensorDataset(inputs, targets), or a data set with the tensors "
    "`images` (n, channels, height, width; uint8 or float32) and `targets` (n, …), or use "
    "loader=workers"
)
"""The data sets of the user that loader=device accepts."""


@dataclass(frozen=True)
class ImageTensors:
    """The images of a data set before augmentation.

    `shape` and `dtype` are those of one image. `read` returns the images of some numbers as one
    tensor. `targets` has a row for each image. Item i of the data set is image i % len(targets).
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    read: Callable[[Sequence[int]], Tensor]
    targets: Tensor
    transform: Transform

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Shape of a stored image: with the border that crops need."""
        border = 2 * self.transform.padding
        if not border:
            return self.shape
        *channels, height, width = self.shape
        return (*channels, height + border, width + border)

    def bytes_of(self, images: int) -> int:
        """Return the memory of some stored images, with targets of several values each."""
        targets = self.targets[0].nbytes if self.targets.ndim > 1 and len(self.targets) else 0
        return images * (prod(self.stored_shape) * self.dtype.itemsize + targets)


def below_subsets(images: Images) -> tuple[Images, Tensor]:
    """Return the data set below subsets, and the numbers of the items there, in their order."""
    items = torch.arange(length(images))
    while isinstance(images, Subset):
        items = torch.as_tensor(images.indices)[items]
        images = images.dataset
    return images, items


def tensors_of(images: Images, workload: Workload, *, train: bool) -> ImageTensors:
    """Return the images of a data set that is no Subset.

    Raises:
        HpmlError: the user's data set does not offer its images as tensors.
    """
    if ":" in workload.data:
        return _of_user(images, f"loader=device with workload.data={workload.data}")
    return _READERS[workload.data](images, train)


def check_tensors(data: Data, workload: Workload) -> None:
    """Check that loader=device can load a workload's training and test images.

    Raises:
        HpmlError: as `tensors_of`.
    """
    for images, train in ((data.train, True), (data.test, False)):
        if images is not None:
            tensors_of(below_subsets(images)[0], workload, train=train)


def _of_cifar10(images: Any, train: bool) -> ImageTensors:
    pixels = torch.from_numpy(images.data).permute(0, 3, 1, 2)
    return _in_memory(pixels, torch.tensor(images.targets), photo_transform(train=train))


def _of_folder(images: Any, train: bool) -> ImageTensors:
    return ImageTensors(
        shape=images.shape,
        dtype=torch.uint8,
        read=images.read,
        targets=torch.tensor(images.targets),
        transform=photo_transform(train=train),
    )


def _of_tensors(images: Any, _train: bool) -> ImageTensors:
    return _in_memory(images.images, images.targets, images.transform)


_READERS: Mapping[str, Callable[[Any, bool], ImageTensors]] = {
    "cifar10": _of_cifar10,
    "folder": _of_folder,
    "digits": _of_tensors,
    "synthetic": _of_tensors,
    **dict.fromkeys(TOKEN_DATA, _of_tensors),
}


def _in_memory(images: Tensor, targets: Tensor, transform: Transform) -> ImageTensors:
    shape = tuple(images.shape[1:])
    return ImageTensors(shape, images.dtype, lambda numbers: images[numbers], targets, transform)


def _of_user(images: Any, what: str) -> ImageTensors:
    """Return the tensors of the user's data set, if they agree with its own items.

    A TensorDataset gives its rows as they are. Another data set may have `padding`, `flip`, `mean`
    and `std` beside its images, which are cropped and flipped at random, divided by 255 if they are
    uint8, and normalized.
    """
    if isinstance(images, TensorDataset) and len(images.tensors) == 2:
        return _in_memory(*images.tensors, Transform())
    pixels, targets = (_as_tensor(getattr(images, name, None)) for name in ("images", "targets"))
    if pixels is None or targets is None:
        raise HpmlError(f"{what}: {type(images).__name__} is no data set of tensors: {ACCEPTED}")
    number = length(images)
    if pixels.ndim != 4 or pixels.dtype not in (torch.uint8, torch.float32):
        described = f"{tuple(pixels.shape)} {str(pixels.dtype).removeprefix('torch.')}"
        raise HpmlError(f"{what}: its `images` are {described}: {ACCEPTED}")
    if not len(pixels) == len(targets) == number:
        raise HpmlError(
            f"{what}: it has {number} items, {len(pixels)} `images` and {len(targets)} `targets`: "
            f"{ACCEPTED}"
        )
    transform = Transform(
        padding=int(getattr(images, "padding", 0)),
        flip=bool(getattr(images, "flip", False)),
        divisor=255.0 if pixels.dtype == torch.uint8 else None,
        mean=tuple(getattr(images, "mean", ())),
        std=tuple(getattr(images, "std", ())),
    )
    tensors = _in_memory(pixels, targets, transform)
    _check_items(images, tensors, what)
    return tensors


def _as_tensor(value: Any) -> Tensor | None:
    """Return a tensor or an array as a tensor; None for anything else."""
    if isinstance(value, Tensor):
        return value
    return torch.from_numpy(value) if hasattr(value, "__array__") else None


def _check_items(images: Any, tensors: ImageTensors, what: str) -> None:
    """Compare the first and the last item with what the tensors give, except random values."""
    for number in {0, len(tensors.targets) - 1}:
        item, target = images[number]
        here = tensors.transform.converted(tensors.read([number]))[0]
        item = torch.as_tensor(item)
        same = item.shape == here.shape and item.dtype == here.dtype
        if same and not tensors.transform.is_random:
            same = torch.allclose(item, here, atol=1e-5)
        if not same or not torch.equal(torch.as_tensor(target), tensors.targets[number]):
            raise HpmlError(
                f"{what}: item {number} is not what its `images`, `targets`, `padding`, `flip`, "
                "`mean` and `std` give: make them agree, or use loader=workers"
            )
