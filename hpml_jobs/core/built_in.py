"""The built-in data sets and models: what is known of them before they are opened or built."""

from collections.abc import Mapping
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import NamedTuple

from hpml_jobs.core import data_files
from hpml_jobs.core.data_files import BYTE_DATA
from hpml_jobs.core.errors import UsageError


class Unit(StrEnum):
    """What throughput counts; a batch counts samples, which may be windows of several tokens."""

    IMAGES = "images"
    TOKENS = "tokens"
    SAMPLES = "samples"


class Dataset(NamedTuple):
    """The facts of a data set that are known before it is opened.

    `images` are those of one training epoch; None where they are counted (`on_disk`) or given as
    `workload.images`. `classes` and `image_size` are None where the data or the user decides.
    `downloaded` names the files below the data root that show that the download
    is complete; without them nothing is downloaded. `caption` describes `{images}` of it, with
    `{limited}` where a limit cuts it; `{samples}` names them where they are no images. `unit` is
    what throughput counts of it.
    """

    title: str
    caption: str
    images: int | None = None
    classes: int | None = None
    image_size: int | None = None
    on_disk: bool = False
    downloaded: tuple[str, ...] = ()
    unit: Unit = Unit.IMAGES

    def is_missing(self, root: Path) -> bool:
        """Whether it has to be downloaded into `root` first (its contents are checked in a job)."""
        return not all((root / file).is_file() for file in self.downloaded)


CIFAR10_IMAGES = 50_000

DATASETS: Mapping[str, Dataset] = {
    "cifar10": Dataset(
        title="CIFAR-10",
        caption="{images} images of CIFAR-10 per epoch{limited}",
        images=CIFAR10_IMAGES,
        classes=10,
        image_size=32,
        on_disk=True,
        downloaded=(
            "cifar-10-batches-py/data_batch_1",
            "cifar-10-batches-py/data_batch_2",
            "cifar-10-batches-py/data_batch_3",
            "cifar-10-batches-py/data_batch_4",
            "cifar-10-batches-py/data_batch_5",
            "cifar-10-batches-py/test_batch",
        ),
    ),
    "digits": Dataset(
        title="scikit-learn's digits",  # 1,797 of them, less the 297 held out for testing
        caption="{images} randomly shifted copies of 1,500 real images of digits per "
        "epoch{limited}",
        images=20_480,
        classes=10,
        image_size=32,
    ),
    "folder": Dataset(
        title="a folder of images",
        caption="{images} images of a folder per epoch{limited}",
        on_disk=True,
    ),
    "synthetic": Dataset(
        title="synthetic images", caption="{images} made-up images per epoch"
    ),
    data_files.TEXT: Dataset(
        title="source of Python's standard library",
        caption="bytes of Python's standard library, {images} {samples} per epoch{limited}",
        unit=Unit.TOKENS,
    ),
    data_files.FOLDER: Dataset(
        title="a folder of text",
        caption="bytes of a folder of text, {images} {samples} per epoch{limited}",
        on_disk=True,
        unit=Unit.TOKENS,
    ),
    data_files.TOKENS: Dataset(
        title="synthetic tokens",
        caption="{images} made-up {samples} per epoch{limited}",
        unit=Unit.TOKENS,
    ),
}
"""The built-in data sets, by `workload.data`; `pkg.mod:name` is the user's code."""


TOKEN_DATA = (*BYTE_DATA, data_files.TOKENS)
"""The data sets whose samples are windows of tokens."""


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
"""The built-in models of images, by `workload.model`; a test builds each and counts."""

GPT = "gpt"
"""The built-in transformer, by `workload.model`."""

MODEL_NAMES = (*MODELS, GPT)
"""All built-in models."""


class TransformerShape(NamedTuple):
    """The size of a transformer: blocks, heads of attention, width, window and vocabulary.

    `context` is the number of tokens of a window, `vocab` that of different tokens.
    """

    layers: int
    heads: int
    width: int
    context: int
    vocab: int

    @property
    def parameters(self) -> int:
        """Return its number of parameters, those of GPT-2 (Radford et al. 2019).

        Of a block: attention 4 d^2 + 4 d, MLP 8 d^2 + 5 d, two LayerNorms 4 d, with the width d.
        Around the blocks: (vocab + context) d for embeddings and 2 d for the last LayerNorm. The
        output weights are those of the token embedding.

        >>> TransformerShape(12, 12, 768, 1024, 50_257).parameters
        124439808
        >>> TransformerShape(24, 16, 1024, 1024, 50_257).parameters
        354823168
        """
        width = self.width
        block = 12 * width**2 + 13 * width
        return (self.vocab + self.context) * width + self.layers * block + 2 * width


SHAPE_KEYS = TransformerShape._fields
"""The keys of a workload that are the shape of a transformer."""


def check_heads(width: int | None, heads: int | None) -> None:
    """Refuse a width that does not divide over the heads.

    Raises:
        UsageError: the message names the nearest widths that do.
    """
    if width is None or heads is None or width % heads == 0:
        return
    below = width // heads * heads
    fits = " or ".join(str(near) for near in (below, below + heads) if near)
    raise UsageError(
        f"workload.width={width} does not divide over workload.heads={heads}; use "
        f"workload.width={fits}"
    )


SCRIPT = "script"
"""Model and data of a training script, which are its own."""

UNREPORTED_MODEL, UNREPORTED_DATA = "model not told", "data not told"
"""Model and data of imported timings without them: part of the hash, which other words change."""

RESNET18_PARAMETERS = 11_173_962
"""Parameters of the lab's model: ResNet-18 with the CIFAR stem and 10 classes."""
