"""The commit of the user's code, where it is in a git working tree."""

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from hpml_jobs.core.workload import SourceFile

_TIMEOUT_S = 10


class WorkingTree(NamedTuple):
    """The commit of a working tree, and whether source files differ from it; None: unknown."""

    commit: str | None = None
    dirty: bool | None = None


def working_tree(folder: Path, files: Iterable[SourceFile]) -> WorkingTree:
    """Return the state of the working tree that a folder is in, of its `files` only.

    Both values are None without files, without git, and outside of a working tree.
    """
    names = [file.name for file in files if (folder / file.name).is_file()]
    commit = _git(folder, "rev-parse", "HEAD") if names else None
    if not commit:
        return WorkingTree()
    status = _git(folder, "status", "--porcelain", "--", *names)
    return WorkingTree(commit.strip(), None if status is None else bool(status.strip()))


def _git(folder: Path, *arguments: str) -> str | None:
    """Return the output of a git command; None if it failed or there is no git."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
