"""A folder of images, train/CLASS/IMAGE: its classes and files, and what is wrong with a file.

Without Pillow, which login nodes do not have: a file is judged by its first and last bytes.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from hpml_jobs.errors import HpmlError

ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""The names of images, as torchvision's ImageFolder has them."""

TRAIN, TEST = "train", ("test", "val")
"""The folders of training images and of test images, which may have either name."""

SAMPLED_FILES = 2_000
HEAD_BYTES = 16_384
"""The identity of a folder reads the beginning of at most so many files, evenly spread."""

_STARTS = (
    *(b"GIF8", b"BM", b"II*\0", b"MM\0*", b"\0\0\0\x0cjP", b"\xff\x4f\xff\x51", b"\0\0\1\0"),
    *(b"P1", b"P2", b"P3", b"P4", b"P5", b"P6", b"P7", b"Pf", b"8BPS", b"DDS "),
)
"""First bytes of other formats that Pillow reads, whatever the name of the file says."""

_JPEG, _JPEG_END, _JPEG_SCAN = b"\xff\xd8", b"\xff\xd9", 0xDA
_PNG, _PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND"


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
    try:
        for file in files[:: -(-len(files) // SAMPLED_FILES) or 1]:
            with file.open("rb") as stream:
                digest.update(b"%d " % os.fstat(stream.fileno()).st_size + stream.read(HEAD_BYTES))
    except OSError as error:
        raise HpmlError(f"{error.filename}: {error.strerror}: make it readable") from error
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


def fault_of(file: Path) -> str | None:
    """Return why a file cannot be an image: empty, unreadable, truncated; None: it may be one."""
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            return "empty file" if not size else _fault(stream, size)
    except OSError as error:
        return error.strerror or str(error)


def _fault(stream: BinaryIO, size: int) -> str | None:
    start = stream.read(16)
    if start.startswith(_JPEG):
        return None if _jpeg_ends(stream, size) else "truncated image file"
    if start.startswith(_PNG):
        return None if _png_ends(stream) else "truncated image file"
    if start.startswith(b"RIFF"):
        is_whole = size >= int.from_bytes(start[4:8], "little") + 8
        return None if is_whole else "truncated image file"
    if start.startswith(_STARTS) or start[4:8] == b"ftyp":  # the last: AVIF, HEIF
        return None
    return f"no image (it begins with {start[:8]!r})"


def _jpeg_ends(stream: BinaryIO, size: int) -> bool:
    """Whether a JPEG has its end marker after the header, whose thumbnail may have one, too."""
    place = 2
    while place + 4 <= size:
        stream.seek(place)
        mark = stream.read(4)
        if mark[0] != 0xFF:
            break  # not a segment: search from here
        if mark[1] == _JPEG_SCAN:
            break
        place += 1 if mark[1] == 0xFF else 2 + int.from_bytes(mark[2:], "big")
    if place + 4 > size:
        return False
    tail = max(place, size - 4096)
    stream.seek(tail)
    if _JPEG_END in stream.read():
        return True
    stream.seek(place)  # other data may follow the image
    return _JPEG_END in stream.read(tail + 1 - place)


def _png_ends(stream: BinaryIO) -> bool:
    """Whether a PNG has its last chunk; each has a length, a name, its data and a checksum."""
    stream.seek(len(_PNG))
    while len(head := stream.read(8)) == 8:
        if head[4:] == _PNG_END:
            return True
        stream.seek(int.from_bytes(head[:4], "big") + 4, os.SEEK_CUR)
    return False
