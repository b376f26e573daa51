"""A folder of images as a data set: its classes and images, and files that no loader can read."""

from collections.abc import Callable, Container, Sequence
from itertools import chain
from math import ceil
from pathlib import Path

import msgspec

from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.data_files import TRAIN, class_folders, images_of, test_folder
from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.core.text import counted, few
from hpml_jobs.core.workload import Workload

SCANNED_FILES = 500
"""At most so many files are opened, evenly spread."""

_JPEG, _PNG = b"\xff\xd8", b"\x89PNG\r\n\x1a\n"
_ENDS = {_JPEG: b"\xff\xd9", _PNG: b"IEND"}
"""What files that begin so have near their end; other data may follow."""

_OTHER_STARTS = (
    *(b"GIF8", b"BM", b"II*\0", b"MM\0*", b"\0\0\1\0", b"RIFF", b"8BPS", b"DDS "),
    *(b"\0\0\0\x0cjP", b"\xff\x4f\xff\x51"),
    *(b"P1", b"P2", b"P3", b"P4", b"P5", b"P6", b"P7", b"Pf"),
)
"""First bytes of other formats that Pillow reads, whatever the name of the file says."""

SHOWN = 5
"""Number of files, classes or links that a message names."""


def with_images(
    workload: Workload,
    root: Path,
    _: Cluster,
    given: Container[str],
    notify: Callable[[str], None],
) -> Workload:
    """Return the workload with the classes and the number of training images of its folder.

    Raises:
        HpmlError: the folder is missing or damaged.
        UsageError: another number of classes was given.
    """
    classes, images = read_image_folder(root, notify)
    workload = _with_classes(workload, root, classes, given)
    return msgspec.structs.replace(workload, images=images)


def _with_classes(
    workload: Workload, root: Path, classes: Sequence[str], given: Container[str]
) -> Workload:
    if "workload.classes" in given and workload.classes != len(classes):
        names = ", ".join(classes[:5])
        if len(classes) > 5:
            names += ", …"
        raise UsageError(
            f"workload.classes={workload.classes}: {root / 'train'} has {len(classes)} ({names}); "
            "leave workload.classes= out"
        )
    return msgspec.structs.replace(workload, classes=len(classes))


def read_image_folder(
    root: Path, notify: Callable[[str], None]
) -> tuple[list[str], int]:
    """Return the classes and the number of training images of root/train/CLASS/**.

    Raises:
        HpmlError: it is no folder data set, a class is empty, test has other classes than train, or
            scanned files are not images; the message names them.
    """
    loops: list[Path] = []
    test: dict[str, list[Path]] = {}
    try:
        train = _classes(root, root / TRAIN, loops)
        test_root = test_folder(root)
        if test_root is not None:
            test = _classes(root, test_root, loops)
    except OSError as error:
        raise HpmlError(
            f"data.root={root}: {error.filename}: {error.strerror}"
        ) from error
    if test_root is not None:
        _compare(root, test_root.name, list(train), list(test))
    if loops:
        notify(
            f"{_names(root, loops)}: a link to a folder around it, which is not followed"
        )
    train_files = list(chain(*train.values()))
    test_files = list(chain(*test.values()))
    parts = [
        counted(len(train), "class", "classes"),
        counted(len(train_files), "training image"),
    ]
    if test_root is not None:
        parts.append(counted(len(test_files), "test image"))
    notify(f"{root}: {', '.join(parts)}; {_scan(root, [*train_files, *test_files])}")
    return list(train), len(train_files)


def _classes(root: Path, folder: Path, loops: list[Path]) -> dict[str, list[Path]]:
    """Return the images of each class."""
    if not folder.is_dir():
        raise HpmlError(
            f"data.root={root} has no folder {folder.name}; workload.data=folder needs "
            "train/CLASS/IMAGE (and test/CLASS/IMAGE)"
        )
    classes = {path.name: images_of(path, loops) for path in class_folders(folder)}
    if not any(classes.values()):
        raise HpmlError(f"data.root={root}: no images in {folder}/CLASS")
    empty = [folder / name for name, images in classes.items() if not images]
    if empty:
        raise HpmlError(
            f"data.root={root}: no images in {_names(root, empty)}: each folder is a class; add "
            "images or remove it"
        )
    return classes


def _compare(root: Path, part: str, train: Sequence[str], test: Sequence[str]) -> None:
    missing = [name for name in train if name not in test]
    extra = [name for name in test if name not in train]
    if missing or extra:
        differences = []
        if missing:
            differences.append(f"{', '.join(missing[:SHOWN])} only in train")
        if extra:
            differences.append(f"{', '.join(extra[:SHOWN])} only in {part}")
        raise HpmlError(
            f"data.root={root}: train has {len(train)} classes and {part} {len(test)}, which must "
            f"be the same ({'; '.join(differences)})"
        )


def _scan(root: Path, files: list[Path]) -> str:
    """Check files, evenly spread, for what no loader can read; return how many were checked.

    Raises:
        HpmlError: files are empty, unreadable, truncated or no images.
    """
    sample = files[:: ceil(len(files) / SCANNED_FILES)]
    words = f"scanned {len(sample):,} of {len(files):,} files"
    faults = [
        f"{file.relative_to(root)}: {fault}"
        for file in sample
        if (fault := fault_of(file))
    ]
    if faults:
        raise HpmlError(
            f"data.root={root}: {few(faults, SHOWN)} ({words}): replace or remove them"
        )
    return words


def fault_of(file: Path) -> str | None:
    """Return why a file cannot be an image: empty, unreadable, truncated; None: it may be one.

    It is judged without Pillow, which login nodes do not have.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        return error.strerror or str(error)
    if not content:
        return "empty file"
    for start, end in _ENDS.items():
        if content.startswith(start):
            return None if end in content else "truncated image file"
    is_other = (
        content.startswith(_OTHER_STARTS) or content[4:8] == b"ftyp"
    )  # AVIF, HEIF
    return None if is_other else f"no image (it begins with {content[:8]!r})"


def _names(root: Path, paths: list[Path]) -> str:
    return few((str(path.relative_to(root)) for path in paths), SHOWN)
