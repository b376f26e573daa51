"""The windows of a text: how many samples it is at a length of context."""

import platform
from collections.abc import Callable
from pathlib import Path

from hpml_jobs.core.data_files import TEXT, text_files, total_bytes, windows
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.workload import Workload


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
