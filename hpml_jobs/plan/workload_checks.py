"""A workload's keys, checked against each other, what is built in, and the windows of a text."""

import platform
from collections.abc import Callable, Container, Sequence
from pathlib import Path

from hpml_jobs.core.built_in import (
    DATASETS,
    GPT,
    MODEL_NAMES,
    MODELS,
    SHAPE_KEYS,
    TOKEN_DATA,
    Dataset,
)
from hpml_jobs.core.data_files import BYTE_DATA, TEXT, TOKENS, text_files, total_bytes, windows
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.text import did_you_mean
from hpml_jobs.core.workload import Loss, Optimizer, Workload


def check_names(workload: Workload) -> None:
    """Refuse data, models and so on that neither are built in nor refer to the user's code."""
    choices = {"data": DATASETS, "model": MODEL_NAMES, "loss": [*Loss], "optimizer": [*Optimizer]}
    for key, names in choices.items():
        name = getattr(workload, key)
        if ":" not in name and name not in names:
            hint = did_you_mean(name, names)
            raise UsageError(
                f"workload.{key}={name}: choose one of {', '.join(names)}, or your own pkg.mod:name"
                f"{hint}"
            )


def check_facts(workload: Workload, dataset: Dataset | None) -> None:
    """Refuse classes, image sizes or units that a built-in data set or model does not have."""
    if dataset is not None and workload.unit not in (None, dataset.unit):
        raise UsageError(
            f"workload.unit={workload.unit}: workload.data={workload.data} has "
            f"{dataset.unit.value}; leave workload.unit= out"
        )
    facts = () if dataset is None else ("classes", "image_size")
    for key in facts:
        given, fact = getattr(workload, key), getattr(dataset, key)
        if fact is not None and given != fact:
            raise UsageError(
                f"workload.{key}={given}: workload.data={workload.data} has {key}={fact}; leave "
                f"workload.{key}= out"
            )
    model = MODELS.get(workload.model)
    if model is not None:
        least, most = model.image_sizes
        if not least <= workload.image_size <= most:
            accepted = f"{least:g}" if least == most else f"{least:g} or more"
            raise UsageError(
                f"workload.image_size={workload.image_size}: workload.model={workload.model} "
                f"accepts {accepted}"
            )


IMAGE_KEYS = ("classes", "image_size")
"""The keys of a workload that nothing reads where the data are tokens."""


def check_model_keys(workload: Workload, given: Container[str]) -> None:
    """Refuse keys of a transformer that are missing or that nothing reads, and those of images.

    `given` are the keys that the user set.

    Raises:
        UsageError: the message names the key.
    """
    model, data = f"workload.model={workload.model}", f"workload.data={workload.data}"
    if workload.padded_vocab is not None and workload.model != GPT:
        raise UsageError(
            f"workload.padded_vocab={workload.padded_vocab} with {model}: only workload.model="
            f"{GPT} pads its vocabulary; leave workload.padded_vocab= out"
        )
    if workload.model == GPT:
        _require(workload, SHAPE_KEYS, model, "workload=gpt_nano has them")
        if workload.data not in TOKEN_DATA and ":" not in workload.data:
            raise UsageError(
                f"{model} with {data}: it reads tokens; use workload.data={', '.join(BYTE_DATA)}, "
                f"{TOKENS} or your own pkg.mod:dataset"
            )
    elif workload.model in MODELS:
        surplus = next((key for key in SHAPE_KEYS if getattr(workload, key) is not None), None)
        if workload.data in TOKEN_DATA:
            raise UsageError(
                f"{model} with {data}: it reads images; use workload.model={GPT} or your own "
                "pkg.mod:build"
            )
        if surplus:
            raise UsageError(
                f"workload.{surplus}={getattr(workload, surplus)} with {model}: only "
                f"workload.model={GPT} reads it; leave workload.{surplus}= out"
            )
    if workload.data in TOKEN_DATA:
        _require(workload, ("context", "vocab") if workload.data == TOKENS else ("context",), data)
        image_key = next((key for key in IMAGE_KEYS if f"workload.{key}" in given), None)
        if image_key:
            raise UsageError(
                f"workload.{image_key}= with {data}: tokens have no {image_key}; leave it out"
            )


def count_windows(workload: Workload, root: Path, notify: Callable[[str], None]) -> int:
    """Return the windows of training text, by the sizes of its files.

    Raises:
        HpmlError: there is no text.
        UsageError: no window fits in the training text or in the held-out text.
    """
    files = text_files(workload.data, root)
    context = workload.context or 1
    parts = {"training": files.train, "held-out": files.test}
    sizes = {name: total_bytes(of_part) for name, of_part in parts.items() if of_part}
    for name, size in sizes.items():
        if windows(size, context) < 1:
            remedy = f"use workload.context={size - 1} or less" if size > 1 else "add text"
            raise UsageError(
                f"workload.context={context} is longer than the {name} text of "
                f"workload.data={workload.data} ({size:,} bytes); {remedy}"
            )
    is_library = workload.data == TEXT
    where = f"Python {platform.python_version()}'s standard library" if is_library else str(root)
    texts = [f"{size:,} bytes of {name} text" for name, size in sizes.items()]
    number = windows(sizes["training"], context)
    notify(f"{where}: {', '.join(texts)}; {number:,} windows of {context} tokens per epoch")
    return number


def _require(workload: Workload, keys: Sequence[str], what: str, remedy: str = "") -> None:
    missing = [f"workload.{key}=" for key in keys if getattr(workload, key) is None]
    if missing:
        raise UsageError(f"{what} needs {', '.join(missing)}" + (f"; {remedy}" if remedy else ""))
