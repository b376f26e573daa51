"""Loading with loader=device: the images lie on the device, which augments whole batches."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset

from hpml_jobs.core.built_in import TOKEN_DATA
from hpml_jobs.core.cell import Cell
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.text import Share
from hpml_jobs.core.workload import Workload
from hpml_jobs.worker.data.datasets import Data, Images, length
from hpml_jobs.worker.data.images import Transform, photo_transform
from hpml_jobs.worker.data.loaders import Batch, BatchLoader, RecordedSampler

FREE_SHARE = Share(0.5)
"""The share of the free memory that the images may take; the rest is for training."""

CHUNK = 1024
"""Images that are read at a time."""


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
        targets = (
            self.targets[0].nbytes if self.targets.ndim > 1 and len(self.targets) else 0
        )
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
        HpmlError: the user's data set is no TensorDataset of inputs and targets.
    """
    if ":" in workload.data:
        return _of_user(images, workload)
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
    return _in_memory(
        pixels, torch.tensor(images.targets), photo_transform(train=train)
    )


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
    return ImageTensors(
        shape, images.dtype, lambda numbers: images[numbers], targets, transform
    )


def _of_user(images: Any, workload: Workload) -> ImageTensors:
    if not isinstance(images, TensorDataset) or len(images.tensors) != 2:
        raise HpmlError(
            f"loader=device with workload.data={workload.data}: {type(images).__name__} is no "
            "torch.utils.data.TensorDataset(inputs, targets): return one, or use loader=workers"
        )
    return _in_memory(*images.tensors, Transform())


class DeviceImages:
    """The images of one data set in the memory of a device: each once, with the border of crops.

    `rows` has the row of each item of the data set, `targets` the target of each row.
    """

    def __init__(self, images: Images, tensors: ImageTensors, items: Tensor) -> None:
        self.dataset = images
        self.transform = tensors.transform
        self._tensors = tensors
        self._numbers, self.rows = torch.unique(
            items % len(tensors.targets), return_inverse=True
        )
        self.targets = tensors.targets[self._numbers]
        self.pixels = torch.empty(0)

    @property
    def bytes(self) -> int:
        """Memory that the images take."""
        return self._tensors.bytes_of(len(self._numbers))

    @property
    def number(self) -> int:
        """Number of images."""
        return len(self._numbers)

    def store(self, device: torch.device) -> None:
        """Read all images and keep them on the device."""
        shape, border = self._tensors.stored_shape, self.transform.padding
        self.pixels = torch.zeros(
            (self.number, *shape), dtype=self._tensors.dtype, device=device
        )
        for start in range(0, self.number, CHUNK):
            part = self._tensors.read(self._numbers[start : start + CHUNK].tolist())
            stored = self.pixels[start : start + CHUNK]
            if border:
                stored = stored[..., border:-border, border:-border]
            stored.copy_(part)
        self.targets, self.rows = self.targets.to(device), self.rows.to(device)
        # a copy in a batch would be waited for
        self._constants = self.transform.constants(device)

    @cached_property
    def crops(self) -> Tensor:
        """All crops of all images, a view (n, channels, offsets, offsets, height, width)."""
        *_, height, width = self._tensors.shape
        return self.pixels.unfold(2, height, 1).unfold(3, width, 1)

    def draw(self, order: Sequence[int], generator: torch.Generator | None) -> "Draws":
        """Draw for images in an order, each its own, from the distributions of torchvision.

        RandomCrop draws both offsets from 0 to 2 x padding, RandomHorizontalFlip flips every other
        image.
        """
        device = self.pixels.device
        number = len(order)
        offsets = flip = None
        numbers = torch.tensor(order, dtype=torch.int64)
        if device.type != "cpu":
            numbers = numbers.pin_memory()
        rows = self.rows[numbers.to(device, non_blocking=True)]
        if self.transform.padding:
            most = 2 * self.transform.padding
            offsets = torch.randint(
                most + 1, (2, number), generator=generator, device=device
            )
        if self.transform.flip:
            flip = torch.rand(number, generator=generator, device=device) < 0.5
        return Draws(rows, offsets, flip)

    def batch(self, draws: "Draws", start: int, stop: int) -> Batch:
        """Return the inputs and targets from `start` up to `stop`, augmented by the device."""
        rows, offsets, flip = draws
        rows = rows[start:stop]
        if offsets is None:
            images = self.pixels[rows]
        else:
            top, left = offsets[:, start:stop]
            images = self.crops[rows, :, top, left]
        if flip is not None:
            images = torch.where(
                flip[start:stop, None, None, None], images.flip(-1), images
            )
        return self.transform.converted(images, self._constants), self.targets[rows]


class Draws(NamedTuple):
    """The order of the images of an epoch and their random draws, on the device.

    `rows` and `flip` have one value for each image, `offsets` (2, n) its crop's first line and
    column. `flip` and `offsets` are None without such augmentation.
    """

    rows: Tensor
    offsets: Tensor | None
    flip: Tensor | None


class DeviceBatch(NamedTuple):
    """The place of a batch in an epoch."""

    draws: Draws
    start: int
    stop: int


class DeviceLoader:
    """Yields places of batches; `to_device` makes the batch, after the stamp that ends stall.

    The draws of an epoch belong to the stall, as the order that a sampler draws for workers does.
    """

    def __init__(
        self, images: DeviceImages, batch: int, order: RecordedSampler | range
    ) -> None:
        self.dataset = images.dataset
        self._images = images
        self._batch = batch
        self._order = order
        self._generator: torch.Generator | None = None

    def __len__(self) -> int:
        return ceil(len(self._order) / self._batch)

    def __iter__(self) -> Iterator[DeviceBatch]:
        if self._generator is None and isinstance(self._order, RecordedSampler):
            # Drawn where a DataLoader draws the seed of its workers, so the order is the same,
            # also of images that nothing augments.
            seed = torch.empty((), dtype=torch.int64).random_()
            self._generator = torch.Generator(self._images.pixels.device)
            self._generator.manual_seed(int(seed.item()))
        order = list(self._order)
        draws = self._images.draw(order, self._generator)
        for start in range(0, len(order), self._batch):
            yield DeviceBatch(draws, start, min(start + self._batch, len(order)))

    def to_device(self, batch: DeviceBatch) -> Batch:
        """Return the inputs and targets of a batch; the host does not wait."""
        return self._images.batch(*batch)


class DeviceLoading:
    """Loading with loader=device; all images are stored when it is made."""

    def __init__(self, cell: Cell, data: Data, device: torch.device) -> None:
        self._cell = cell
        self._train = _images_of(data.train, cell, train=True)
        self._test = (
            None if data.test is None else _images_of(data.test, cell, train=False)
        )
        sets = [images for images in (self._train, self._test) if images is not None]
        number = sum(images.number for images in sets)
        needed = sum(images.bytes for images in sets)
        if device.type != "cpu":
            free, _ = torch.get_device_module(device).mem_get_info(device)
            check_memory(cell, number, needed, free)
        for images in sets:
            images.store(device)

    def train_loader(self, batch: int, order: RecordedSampler) -> BatchLoader:
        """Return the training batches in the order of the sampler, a partial last one included."""
        return DeviceLoader(self._train, batch, order)

    def test_loader(self, start: int = 0, step: int = 1) -> BatchLoader | None:
        """Return the batches of every `step`-th test image from `start` on; None without any."""
        if self._test is None:
            return None
        order = range(start, len(self._test.rows), step)
        return DeviceLoader(self._test, self._cell.workload.test_batch, order)


def _images_of(images: Images, cell: Cell, *, train: bool) -> DeviceImages:
    below, items = below_subsets(images)
    return DeviceImages(images, tensors_of(below, cell.workload, train=train), items)


def check_memory(cell: Cell, images: int, needed_bytes: int, free: float) -> None:
    """Check that the images leave memory for training.

    Raises:
        HpmlError: they take more than `FREE_SHARE` of the free memory.
    """
    if needed_bytes > FREE_SHARE * free:
        raise HpmlError(
            f"loader=device: {images:,} {cell.workload.samples_name} take "
            f"{needed_bytes / 1e9:.3g} GB on every device, more than {FREE_SHARE} of the "
            f"{free / 1e9:.3g} GB that are free: use loader=workers, or fewer "
            f"{cell.workload.samples_name} (data.limit=)"
        )
