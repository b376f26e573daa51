"""Files of data in a folder of the user: where they are, and their identity."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hpml_jobs.core.errors import HpmlError

TRAIN, TEST = "train", ("test", "val")
"""The folders of training images and of test images, which may have either name."""

SAMPLED_FILES = 2_000
HEAD_BYTES = 16_384
"""The identity of a folder reads the beginning of at most so many files, evenly spread."""


def test_folder(root: Path) -> Path | None:
    """Return the folder of the test images; None if there is none."""
    return next((root / name for name in TEST if (root / name).is_dir()), None)


@contextmanager
def readable() -> Iterator[None]:
    """Turn an error of the file system into one that names the file."""
    try:
        yield
    except OSError as error:
        raise HpmlError(
            f"{error.filename}: {error.strerror}: make it readable"
        ) from error


def files_digest(root: Path, files: Sequence[Path]) -> str:
    """Return the identity of the files of a data set (64 hex digits): names, sizes, contents.

    The names below `root` of all files, and of `SAMPLED_FILES` the size and the first `HEAD_BYTES`.
    Times of change do not count, so a copy of the folder is the same data.

    Raises:
        HpmlError: a file cannot be read.
    """
    digest = hashlib.sha256()
    for file in files:
        digest.update(os.fsencode(file.relative_to(root)) + b"\0")
    with readable():
        for file in files[:: -(-len(files) // SAMPLED_FILES) or 1]:
            with file.open("rb") as stream:
                size = os.fstat(stream.fileno()).st_size
                digest.update(b"%d " % size + stream.read(HEAD_BYTES))
    return digest.hexdigest()


TEXT, FOLDER, TOKENS = "text", "text_folder", "tokens"
"""Built-in data of tokens, by `workload.data`: the standard library, a folder, synthetic."""

IMAGE_FOLDER = "folder"
"""`workload.data` of a folder of images."""

BYTE_DATA = (TEXT, FOLDER)
"""Built-in data whose tokens are bytes."""

BYTES = 256
"""Tokens of byte data."""
