"""Files of data: folders of images (train/CLASS/IMAGE), and text with its windows of tokens."""

import hashlib
import os
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from hpml_jobs.core.errors import HpmlError

ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""The names of images, as torchvision's ImageFolder has them."""

TRAIN, TEST = "train", ("test", "val")
"""The folders of training images and of test images, which may have either name."""

SAMPLED_FILES = 2_000
HEAD_BYTES = 16_384
"""The identity of a folder reads the beginning of at most so many files, evenly spread."""


def test_folder(root: Path) -> Path | None:
    """Return the folder of the test images; None if there is none."""
    return next((root / name for name in TEST if (root / name).is_dir()), None)


def class_folders(folder: Path) -> list[Path]:
    """Return the folder of each class, in the order of ImageFolder's labels."""
    return sorted((path for path in folder.iterdir() if path.is_dir()), key=lambda path: path.name)


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


def image_files(root: Path) -> list[Path]:
    """Return the training images and then the test images of root/train and root/test."""
    parts = [part for part in (root / TRAIN, test_folder(root)) if part]
    folders = [folder for part in parts for folder in class_folders(part)]
    return [file for folder in folders for file in images_of(folder)]


@contextmanager
def _readable() -> Iterator[None]:
    """Turn an error of the file system into one that names the file."""
    try:
        yield
    except OSError as error:
        raise HpmlError(f"{error.filename}: {error.strerror}: make it readable") from error


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
    with _readable():
        for file in files[:: -(-len(files) // SAMPLED_FILES) or 1]:
            with file.open("rb") as stream:
                size = os.fstat(stream.fileno()).st_size
                digest.update(b"%d " % size + stream.read(HEAD_BYTES))
    return digest.hexdigest()


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


TEXT, FOLDER, TOKENS = "text", "text_folder", "tokens"
"""Built-in data of tokens, by `workload.data`: the standard library, a folder, synthetic."""

IMAGE_FOLDER = "folder"
"""`workload.data` of a folder of images."""

BYTE_DATA = (TEXT, FOLDER)
"""Built-in data whose tokens are bytes."""

BYTES = 256
"""Tokens of byte data."""

PACKAGES = ("asyncio", "email", "http", "logging")
"""The packages of Python's standard library whose source is `text`: 1.1 to 1.4 MB in Python 3.11
to 3.14, and in every installation, because torch imports them."""

HELD_OUT = 10
"""Every so many files of the standard library one is held out."""


class TextFiles(NamedTuple):
    """The files of training text and of held-out text, in the order in which they are read."""

    train: tuple[Path, ...]
    test: tuple[Path, ...]


def text_files(data: str, root: Path) -> TextFiles:
    """Return the files of `workload.data`; `root` is the folder of text_folder.

    Raises:
        HpmlError: there are none.
    """
    return _folder(root) if data == FOLDER else _standard_library()


def read(files: Sequence[Path]) -> bytes:
    """Return the bytes of all files.

    Raises:
        HpmlError: one cannot be read; the message names it.
    """
    with _readable():
        return b"".join(file.read_bytes() for file in files)


def total_bytes(files: Sequence[Path]) -> int:
    """Return the size of all files together.

    Raises:
        HpmlError: one cannot be found.
    """
    with _readable():
        return sum(file.stat().st_size for file in files)


def windows(tokens: int, context: int) -> int:
    """Return the windows in a text; a window is `context` tokens, each followed by its target.

    >>> windows(1_000, 99), windows(100, 99), windows(99, 99)
    (10, 1, 0)
    """
    return max(0, tokens - 1) // context


def data_digest(data: str, root: Path) -> str | None:
    """Return the identity of the user's folder of images or text; None for other data.

    Raises:
        HpmlError: a file cannot be read.
    """
    if data == FOLDER:
        texts = _folder(root)
        return files_digest(root, (*texts.train, *texts.test))
    return files_digest(root, image_files(root)) if data == IMAGE_FOLDER else None


def _standard_library() -> TextFiles:
    """Return the source of some packages of this Python, one in `HELD_OUT` files held out."""
    library = Path(sysconfig.get_path("stdlib"))
    files = sorted(
        (file for package in PACKAGES for file in (library / package).rglob("*.py")),
        key=lambda file: file.relative_to(library).as_posix(),
    )
    if len(files) < HELD_OUT:
        raise HpmlError(
            f"workload.data=text: {library} has no source of {', '.join(PACKAGES)}: use a Python "
            "whose standard library is in files, or workload.data=text_folder"
        )
    train = tuple(file for number, file in enumerate(files, 1) if number % HELD_OUT)
    return TextFiles(train, tuple(files[HELD_OUT - 1 :: HELD_OUT]))


def _folder(root: Path) -> TextFiles:
    """Return the files root/train/**.txt, and root/test or root/val if one of them exists."""
    train = _texts(root / TRAIN)
    if not train:
        raise HpmlError(
            f"data.root={root}: no files train/**.txt; workload.data=text_folder needs "
            "train/**.txt (and test/**.txt)"
        )
    held_out = test_folder(root)
    test = () if held_out is None else _texts(held_out)
    if held_out is not None and not test:
        raise HpmlError(
            f"data.root={root}: no files {held_out.name}/**.txt: add held-out text, or remove the "
            "folder"
        )
    return TextFiles(train, test)


def _texts(folder: Path) -> tuple[Path, ...]:
    files = [file for file in folder.rglob("*.txt") if file.is_file()]
    return tuple(sorted(files, key=lambda file: file.relative_to(folder).as_posix()))
