"""Workloads, and the facts of the built-in data sets."""

from collections.abc import Mapping
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import NamedTuple

from hpml_jobs.core.value import Value
from hpml_jobs.errors import UsageError


class Loss(StrEnum):
    """The built-in losses; any other loss is the user's `pkg.mod:loss`."""

    CROSS_ENTROPY = "cross_entropy"


class SourceFile(Value, frozen=True, kw_only=True):
    """A module file of the user: its path below its import root, and the sha256 of its text."""

    name: str
    sha256: str

    def __str__(self) -> str:
        """For people, e.g. `mygpt.py 1a2b3c4`."""
        return f"{self.name} {self.sha256[:7]}"


class Workload(Value, frozen=True, kw_only=True):
    """A workload: model, data and optimizer. `pkg.mod:name` refers to the user's code.

    `images` is the number of training images of one epoch, after `limit`; None until it is known.
    `parameters` is the count the model must have; None where nothing is claimed. `code` has the
    local source files of the user's functions (`source_files`); it is empty without such code, and
    in cells of versions before 0.6.0.
    """

    name: str
    model: str
    data: str
    loss: str = Loss.CROSS_ENTROPY
    classes: int = 10
    image_size: int = 32
    images: int | None = None
    limit: int | None = None
    parameters: int | None = None
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    test_batch: int = 100
    code: tuple[SourceFile, ...] = ()

    def __post_init__(self) -> None:
        """Refuse values that no optimizer accepts."""
        for name in ("lr", "momentum", "weight_decay"):
            value = getattr(self, name)
            if not 0 <= value < inf:
                raise UsageError(f"workload.{name}={value:g}: must be 0 or more")
        if self.test_batch < 1:
            raise UsageError(f"workload.test_batch={self.test_batch}: must be 1 or more")

    @property
    def samples_name(self) -> str:
        """Return what an item of the data set is called: the user's are not always images."""
        return UNREPORTED.get(self.data, "samples" if ":" in self.data else "images")

    @property
    def counts_tokens(self) -> bool:
        """Whether samples are tokens, while a batch counts sequences."""
        return self.data == UNREPORTED_TOKENS

    @property
    def own_code(self) -> tuple[str, ...]:
        """Return the `pkg.mod:name` references to the user's code."""
        return tuple(text for text in (self.model, self.data, self.loss) if ":" in text)


class Dataset(NamedTuple):
    """The facts of a data set that are known before it is opened.

    `images` are those of one training epoch; None where they are counted (`on_disk`) or given as
    `workload.images`. `classes` and `image_size` are None where the data or the user decides.
    `downloaded` names the files below the data root that show that the download
    is complete; without them nothing is downloaded. `caption` describes `{images}` of it, with
    `{limited}` where a limit cuts it.
    """

    title: str
    caption: str
    images: int | None = None
    classes: int | None = None
    image_size: int | None = None
    on_disk: bool = False
    downloaded: tuple[str, ...] = ()

    def is_missing(self, root: Path) -> bool:
        """Whether it has to be downloaded into `root` first (its contents are checked in a job)."""
        return not all((root / file).is_file() for file in self.downloaded)


CIFAR10_IMAGES = 50_000

DATASETS: Mapping[str, Dataset] = {
    "cifar10": Dataset(
        title="CIFAR-10",
        caption="cifar10, {images} images per epoch{limited}",
        images=CIFAR10_IMAGES,
        classes=10,
        image_size=32,
        on_disk=True,
        downloaded=tuple(
            f"cifar-10-batches-py/{name}"
            for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
        ),
    ),
    "digits": Dataset(
        title="scikit-learn's digits",  # 1,797 of them, less the 297 held out for testing
        caption="{images} samples drawn from 1,500 real digits images per epoch{limited}, "
        "random shifts",
        images=20_480,
        classes=10,
        image_size=32,
    ),
    "folder": Dataset(
        title="a folder of images",
        caption="folder, {images} images per epoch{limited}",
        on_disk=True,
    ),
    "synthetic": Dataset(title="synthetic images", caption="{images} made-up images per epoch"),
}
"""The built-in data sets, by `workload.data`; `pkg.mod:name` is the user's code."""


class ModelSize(NamedTuple):
    """The size of a built-in model: parameters below the last layer, and of it for each class.

    `image_sizes` are the least and the most height and width that it accepts.
    """

    body: int
    per_class: int
    image_sizes: tuple[float, float] = (1, inf)

    def parameters(self, classes: int) -> int:
        """Return its number of parameters."""
        return self.body + self.per_class * classes


MODELS: Mapping[str, ModelSize] = {
    "resnet18_cifar": ModelSize(11_168_832, 513),
    "resnet18": ModelSize(11_176_512, 513),
    "vgg11_bn": ModelSize(9_225_984, 513, (32, inf)),
    "digits_cnn": ModelSize(23_584, 257, (8, inf)),
    "lenet": ModelSize(60_930, 84, (32, 32)),
    "lenet_bias": ModelSize(60_930, 85, (32, 32)),
}
"""The built-in models, by `workload.model`; a test builds each and counts."""

UNREPORTED_MODEL, UNREPORTED_DATA = "model not told", "data not told"
"""Model and data of imported timings without them: part of the hash, which other words change."""

UNREPORTED_IMAGES = "images not told"
UNREPORTED_SAMPLES, UNREPORTED_TOKENS = "samples not told", "tokens not told"
"""Data of imported rates: their times are not those of an epoch, or their samples not images."""

UNREPORTED: Mapping[str, str] = {
    UNREPORTED_DATA: "images",
    UNREPORTED_IMAGES: "images",
    UNREPORTED_SAMPLES: "samples",
    UNREPORTED_TOKENS: "tokens",
}
"""What samples are called, by the data of imported timings."""

RESNET18_PARAMETERS = 11_173_962
"""Parameters of the lab's model: ResNet-18 with the CIFAR stem and 10 classes."""

NO_TORCH_CODE = 3
"""Exit code of the worker's `prepare` where its Python has no torch or no torchvision."""


TRIAL_CODE = 4
"""Exit code of `prepare` where a batch of the user's code was tried and cannot be trained."""


class Counts(Value, frozen=True, kw_only=True):
    """The answer of `prepare`: training images before and after `limit`, parameters.

    `parameters` is None where the model cannot be built without a GPU. `untried` is the reason why
    no batch was tried, although one should be.
    """

    images: int
    effective: int
    parameters: int | None
    untried: str | None = None
