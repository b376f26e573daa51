"""Workloads: model, data, loss and optimizer, with their settings."""

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import msgspec

from hpml_jobs.core.built_in import (
    DATASETS,
    GPT,
    MODELS,
    SCRIPT,
    SHAPE_KEYS,
    TOKEN_DATA,
    TransformerShape,
    Unit,
    check_heads,
)
from hpml_jobs.core.data_files import BYTE_DATA, BYTES
from hpml_jobs.core.errors import UsageError, refuse_below
from hpml_jobs.core.value import Value


class Loss(StrEnum):
    """The built-in losses; any other loss is the user's `pkg.mod:loss`."""

    CROSS_ENTROPY = "cross_entropy"


class Optimizer(StrEnum):
    """The built-in optimizers; any other one is the user's `pkg.mod:build`."""

    SGD = "sgd"
    ADAMW = "adamw"


WORK_SAMPLES = 1_000_000
"""Times are of so many samples where the samples of an epoch are not known."""

Arg = bool | int | float | str
"""A value of `workload.args`."""

RESERVED_ARGS: Mapping[str, str] = {
    "classes": "workload.classes=",
    "lr": "workload.lr=",
    "momentum": "workload.momentum=",
    "weight_decay": "workload.weight_decay=",
    "root": "data.root=",
    "epochs": "epochs=",
    "iterations": "epochs= and batch=",
}
"""Parameters of the user's functions that other keys fill."""


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
    in cells of versions before 0.6.0. `momentum` is also the first beta of AdamW. `schedule` is the
    user's; None: the recipe's. `args` are passed to those of the user's functions that take them.
    `layers`, `heads` and `width` are those of the transformer, `context` the tokens of a sample,
    `vocab` the number of different tokens, `padded_vocab` the rows of its embedding in memory;
    None: as many. `unit` is what throughput counts; None: by the data
    (`throughput_unit`). `imported` has the source files that the functions import from folders that
    are not on sys.path when they start, and `data_sha256` is the identity of a folder of images or
    text (`data_digest`): both are empty in cells of versions before 0.9.0.
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
    optimizer: str = Optimizer.SGD.value
    schedule: str | None = None
    args: dict[str, Arg] = {}
    test_batch: int = 100
    code: tuple[SourceFile, ...] = ()
    layers: int | None = None
    heads: int | None = None
    width: int | None = None
    context: int | None = None
    vocab: int | None = None
    unit: Unit | None = None
    imported: tuple[SourceFile, ...] = ()
    data_sha256: str | None = None
    padded_vocab: int | None = None

    def __post_init__(self) -> None:
        """Refuse values that no optimizer or no transformer accepts."""
        for name in ("lr", "momentum", "weight_decay"):
            refuse_below(0, f"workload.{name}", getattr(self, name))
        refuse_below(1, "workload.test_batch", self.test_batch)
        if self.optimizer == Optimizer.ADAMW and self.momentum >= 1:
            raise UsageError(
                f"workload.momentum={self.momentum:g} with workload.optimizer=adamw: it is the "
                "first beta, which must be below 1"
            )
        if self.schedule is not None and ":" not in self.schedule:
            raise UsageError(
                f"workload.schedule={self.schedule}: name your own pkg.mod:build; built-in "
                "schedules are recipes, e.g. recipe=goyal"
            )
        self._check_args()
        self._check_shape()

    def __eq__(self, other: object) -> bool:
        """Return whether all is equal, also the types of the args: 1, 1.0 and true differ."""
        if not isinstance(other, Workload):
            return NotImplemented
        types = [*map(type, self.args.values())]
        return super().__eq__(other) and types == [*map(type, other.args.values())]

    def __hash__(self) -> int:
        """Return a hash; a mapping has none, so the args take part by their items."""
        args = tuple(self.args.items())
        return hash(
            (self.name, self.model, self.data, self.optimizer, self.lr, args, self.code)
        )

    def _check_args(self) -> None:
        """Refuse args that no function can take, and put them in the order of their names."""
        for name in self.args:
            if not name.isidentifier():
                raise UsageError(
                    f"workload.args.{name}: {name!r} is no name of a parameter"
                )
            if name in RESERVED_ARGS or name in self.sizes:
                key = RESERVED_ARGS.get(name, f"workload.{name}=")
                raise UsageError(f"workload.args.{name}: use {key} instead")
        if self.args and not self.own_code:
            raise UsageError(
                f"workload.args.{next(iter(self.args))}: only your own functions take args, and "
                f"workload={self.name} has none; leave it out"
            )
        if list(self.args) != sorted(self.args):
            msgspec.structs.force_setattr(self, "args", dict(sorted(self.args.items())))

    @property
    def sizes(self) -> dict[str, int]:
        """Return what the user's functions for model and data get by name beside the args."""
        sizes = {key: getattr(self, key) for key in ("classes", *SHAPE_KEYS)}
        return {key: size for key, size in sizes.items() if size is not None}

    @property
    def args_text(self) -> str:
        """Return the args in words: `layers 4, width 256`."""
        return ", ".join(
            f"{name} {arg_text(value)}" for name, value in self.args.items()
        )

    def _check_shape(self) -> None:
        for key in SHAPE_KEYS:
            refuse_below(1, f"workload.{key}", getattr(self, key))
        check_heads(self.width, self.heads)
        if (
            self.model == GPT
            and self.data in BYTE_DATA
            and self.vocab
            and self.vocab < BYTES
        ):
            raise UsageError(
                f"workload.vocab={self.vocab}: the tokens of workload.data={self.data} are bytes; "
                f"use workload.vocab={BYTES} or more"
            )
        if self.padded_vocab is not None and self.padded_vocab < (self.vocab or 1):
            raise UsageError(
                f"workload.padded_vocab={self.padded_vocab}: must be workload.vocab={self.vocab} "
                "or more"
            )

    @property
    def images_if_known(self) -> int | None:
        """Return the images that are given, else those that a built-in data set always has."""
        dataset = DATASETS.get(self.data)
        return self.images or (dataset.images if dataset else None)

    @property
    def has_tokens(self) -> bool:
        """Whether a sample is a window of tokens, each with the next one as its target."""
        return self.data in TOKEN_DATA or self.model == GPT

    @property
    def has_convolutions(self) -> bool:
        """Whether the model may have convolutions: the built-in transformer has none."""
        return self.model != GPT

    @property
    def bytes_per_token(self) -> int | None:
        """Return the bytes of text that a token stands for; None where that is not known."""
        return 1 if self.data in BYTE_DATA else None

    @property
    def targets(self) -> int:
        """Return how many values a target may have: classes, or tokens."""
        return self.vocab if self.has_tokens and self.vocab else self.classes

    @property
    def shape(self) -> TransformerShape | None:
        """Return the shape of the transformer; None unless it is given whole."""
        values = [getattr(self, key) for key in SHAPE_KEYS]
        return None if None in values else TransformerShape(*values)

    @property
    def padding_parameters(self) -> int:
        """Return the parameters of rows of the embedding that stand for no token."""
        if self.padded_vocab is None or self.shape is None:
            return 0
        return (self.padded_vocab - self.shape.vocab) * self.shape.width

    @property
    def built_in_parameters(self) -> int | None:
        """Return the parameters of a built-in model of this size; None for other models."""
        if self.model == GPT:
            return (
                self.shape.parameters + self.padding_parameters if self.shape else None
            )
        size = MODELS.get(self.model)
        return size.parameters(self.classes) if size else None

    @property
    def throughput_unit(self) -> Unit:
        """Return what throughput counts: as given, else by the data; the user's are samples."""
        if self.unit is not None:
            return self.unit
        if self.has_tokens:
            return Unit.TOKENS
        if ":" in self.data or self.data == SCRIPT:
            return Unit.SAMPLES
        dataset = DATASETS.get(self.data)
        return dataset.unit if dataset else Unit.IMAGES

    @property
    def samples_are_tokens(self) -> bool:
        """Whether samples are tokens, of a script; a batch counts sequences."""
        return self.data == SCRIPT and self.unit is Unit.TOKENS

    @property
    def units_per_sample(self) -> int | None:
        """Return the units of a sample: the tokens of its context, else 1; None: not known."""
        if self.throughput_unit is not Unit.TOKENS or self.samples_are_tokens:
            return 1
        return self.context

    @property
    def samples_name(self) -> str:
        """Return what an item of the data set is called: images, windows of text, or samples."""
        if self.throughput_unit is not Unit.TOKENS or self.samples_are_tokens:
            return self.throughput_unit.value
        return "windows" if self.data in DATASETS else "samples"

    @property
    def samples_text(self) -> str:
        """Return the same with the size of a sample: `windows of 128 tokens`."""
        if self.units_per_sample in (None, 1):
            return self.samples_name
        return f"{self.samples_name} of {self.units_per_sample:,} {self.throughput_unit.value}"

    @property
    def sources(self) -> tuple[SourceFile, ...]:
        """Return all recorded source files of the user's functions."""
        return self.code + self.imported

    @property
    def own_code(self) -> tuple[str, ...]:
        """Return the `pkg.mod:name` references to the user's code."""
        references = (self.model, self.data, self.loss, self.optimizer, self.schedule)
        return tuple(text for text in filter(None, references) if ":" in text)

    @property
    def slug_parts(self) -> list[str]:
        """The name, the args and, where not the default, optimizer and schedule; for a cell's name.

        At most six follow the name.
        """
        references = []
        if self.optimizer != Optimizer.SGD:
            references.append(self.optimizer)
        if self.schedule is not None:
            references.append(self.schedule)
        parts = [reference.rpartition(":")[2] for reference in references]
        parts += [f"{name}{arg_text(value)}" for name, value in self.args.items()]
        return [slug_text(self.name, 40), *(slug_text(part, 20) for part in parts[:6])]


def slug_text(text: str, most: int) -> str:
    """Return a text as a part of a cell's name, of so many characters at most."""
    return re.sub(r"[^a-z0-9_]+", "_", text.lower())[:most]


def arg_text(value: Arg) -> str:
    """Return an arg as it is written on the command line.

    >>> [arg_text(value) for value in (True, 4, 0.001, "relu")]
    ['true', '4', '0.001', 'relu']
    """
    return str(value).lower() if isinstance(value, bool) else str(value)


def refuse_file(key: str, reference: str) -> None:
    """Refuse the file of a module in place of the module: `parts.py`, `./parts:build`."""
    file, _, name = reference.partition(":")
    is_path_of_function = "/" in file and name
    if not (file.endswith(".py") or is_path_of_function):
        return
    path = Path(file).resolve().with_suffix("")
    folder = Path.cwd()
    place = ""
    if not path.is_relative_to(folder):
        folder = path.parent
        place = f", and run the command in {folder}"
    module = ".".join(path.relative_to(folder).parts)
    raise UsageError(
        f"{key}={reference}: name the module, not its file: {key}={module}:{name or 'build'}{place}"
    )
