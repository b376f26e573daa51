"""Files of data in a folder of the user: where they are, which are images, their identity."""

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


ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""The names of images, as torchvision's ImageFolder has them."""


def class_folders(folder: Path) -> list[Path]:
    """Return the folder of each class, in the order of ImageFolder's labels."""
    return sorted(
        (path for path in folder.iterdir() if path.is_dir()), key=lambda path: path.name
    )


def images_of(folder: Path, loops: list[Path] | None = None) -> list[Path]:
    """Return the images of a class in ImageFolder's order; folders inside belong to the class.

    A link to a folder that contains it is not followed, so that no image is there twice; such links
    are added to `loops`.
    """
    by_folder = sorted(_walk(str(folder), (), [] if loops is None else loops))
    return [
        Path(path) / name
        for path, names in by_folder
        for name in sorted(names)
        if name.lower().endswith(ENDINGS)
    ]


def images_digest(root: Path) -> str:
    """Return the identity of the training images and the test images of root/train and root/test.

    Raises:
        HpmlError: a file cannot be read.
    """
    parts = filter(None, (root / TRAIN, test_folder(root)))
    folders = [folder for part in parts for folder in class_folders(part)]
    return files_digest(
        root, [file for folder in folders for file in images_of(folder)]
    )


def _walk(
    folder: str, above: tuple[tuple[int, int], ...], loops: list[Path]
) -> Iterator[tuple[str, list[str]]]:
    """Yield each folder with its files; `above` identifies the folders that contain this one."""
    status = Path(folder).stat()
    identity = (status.st_dev, status.st_ino)
    if identity in above:
        loops.append(Path(folder))
        return
    with os.scandir(folder) as entries:
        inside = sorted(entries, key=lambda entry: entry.name)
    yield folder, [entry.name for entry in inside if not entry.is_dir()]
    for entry in inside:
        if entry.is_dir():
            yield from _walk(entry.path, (*above, identity), loops)
