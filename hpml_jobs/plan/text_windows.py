"""A workload of text at submission: the windows of its text."""

import platform
import sys
from collections.abc import Callable, Container
from pathlib import Path

import msgspec

from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.data_files import FOLDER, TEXT
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.text_data import text_files, total_bytes, windows
from hpml_jobs.core.workload import Workload
from hpml_jobs.plan.data import NotStartedError, prepare


def with_windows(
    workload: Workload,
    root: Path,
    cluster: Cluster,
    given: Container[str],
    notify: Callable[[str], None],
) -> Workload:
    """Return the workload with the windows of its text; the library is that of the jobs' Python.

    Raises:
        HpmlError: there is no text.
        UsageError: no window fits, or another number of windows was given.
    """
    is_here = cluster.python_command(sys.executable) == [sys.executable]
    if is_here or workload.data == FOLDER:
        images = count_windows(workload, root, notify)
    else:
        images = _windows_in_jobs(workload, root, cluster)
    if "workload.images" in given and workload.images not in (None, images):
        raise UsageError(
            f"workload.images={workload.images}: workload.data={workload.data} has {images:,} "
            "windows; use data.limit= to train on fewer"
        )
    return msgspec.structs.replace(workload, images=images)


def _windows_in_jobs(workload: Workload, root: Path, cluster: Cluster) -> int:
    try:
        return prepare(workload, root, cluster).images
    except NotStartedError as error:
        if workload.images is None:
            raise NotStartedError(f"{error}, or give workload.images=") from error
        return workload.images


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
            remedy = (
                f"use workload.context={size - 1} or less" if size > 1 else "add text"
            )
            raise UsageError(
                f"workload.context={context} is longer than the {name} text of "
                f"workload.data={workload.data} ({size:,} bytes); {remedy}"
            )
    is_library = workload.data == TEXT
    where = (
        f"Python {platform.python_version()}'s standard library"
        if is_library
        else str(root)
    )
    texts = [f"{size:,} bytes of {name} text" for name, size in sizes.items()]
    number = windows(sizes["training"], context)
    notify(
        f"{where}: {', '.join(texts)}; {number:,} windows of {context} tokens per epoch"
    )
    return number
