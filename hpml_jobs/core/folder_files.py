"""The files of a folder of images, train/CLASS/IMAGE, and their identity."""

import os
from collections.abc import Iterator
from pathlib import Path

from hpml_jobs.core.data_files import TRAIN, files_digest, test_folder

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


def digest(root: Path) -> str:
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
