"""Batches of the user's code that were tried before and can be trained, kept by their hash."""

import hashlib
from pathlib import Path

import msgspec

from hpml_jobs import __version__
from hpml_jobs.core.paths import user_folder
from hpml_jobs.core.workload import Workload


def key(workload: Workload, root: Path, command: list[str], trial: object) -> str | None:
    """Return the hash of what a trial depends on; None where the code has no local files."""
    if not workload.code:
        return None
    text = msgspec.json.encode([__version__, workload, str(root), command, trial])
    return hashlib.sha256(text).hexdigest()


def has(key: str | None) -> bool:
    """Return whether the batches with this hash were tried before."""
    return key is not None and (_folder() / key).exists()


def add(key: str | None) -> None:
    """Remember that the batches with this hash can be trained, if the folder can be written."""
    if key is None:
        return
    try:
        _folder().mkdir(parents=True, exist_ok=True)
        (_folder() / key).touch()
    except OSError:
        return  # they are tried again


def _folder() -> Path:
    return user_folder("XDG_CACHE_HOME", "~/.cache") / "tried"
