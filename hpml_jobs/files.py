"""JSON of the vocabulary's values, and files that are there whole or not at all."""

import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec


def encode(value: Any) -> bytes:
    """Indented JSON of any of the vocabulary's values."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees all of it or none: temporary name, fsync, replace."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
