"""The files of text: of Python's standard library, or of a folder; their windows of tokens."""

import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hpml_jobs.core.data_files import (
    FOLDER,
    IMAGE_FOLDER,
    TRAIN,
    files_digest,
    images_digest,
    readable,
    test_folder,
)
from hpml_jobs.core.errors import HpmlError

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
    with readable():
        return b"".join(file.read_bytes() for file in files)


def total_bytes(files: Sequence[Path]) -> int:
    """Return the size of all files together.

    Raises:
        HpmlError: one cannot be found.
    """
    with readable():
        return sum(file.stat().st_size for file in files)


def windows(tokens: int, context: int) -> int:
    """Return the windows in a text; a window is `context` tokens, each followed by its target.

    >>> windows(1_000, 99), windows(100, 99), windows(99, 99)
    (10, 1, 0)
    """
    return max(0, tokens - 1) // context


def digest(root: Path) -> str:
    """Return the identity of a folder of text.

    Raises:
        HpmlError: a file cannot be read.
    """
    texts = _folder(root)
    return files_digest(root, (*texts.train, *texts.test))


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


DIGESTS = {IMAGE_FOLDER: images_digest, FOLDER: digest}
"""The identity of the user's folder, by `workload.data`."""


def data_digest(data: str, root: Path) -> str | None:
    """Return the identity of the user's folder of images or text; None for other data.

    Raises:
        HpmlError: a file cannot be read.
    """
    return DIGESTS[data](root) if data in DIGESTS else None
