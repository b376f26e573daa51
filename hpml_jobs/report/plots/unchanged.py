"""Whether the pictures in a folder are those of a report: then they need not be drawn again.

Drawing takes longer than all the rest of a report. `.pictures.json`, beside the pictures, has a
digest of what they show and the size of each.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from hpml_jobs import __version__
from hpml_jobs.core.value import Value
from hpml_jobs.report.report import Report
from hpml_jobs.study.files import encode
from hpml_jobs.study.reader import read_json

FILE = ".pictures.json"


class Drawn(Value, frozen=True, kw_only=True):
    """The pictures in a folder: the digest of what they show, and the bytes of each by name."""

    digest: str
    sizes: dict[str, int]


def digest(report: Report, tables: str) -> str:
    """Return the digest of what pictures show.

    These are the tables, the records, the files of curves and traces, and the code that draws.
    """
    content = hashlib.sha256(f"{__version__}\n{tables}".encode())
    for group in report.groups:
        for result in group.source.cells:
            content.update(result.slug.encode())
            if result.record is not None:
                content.update(msgspec.json.encode(result.record))
            for path in (result.iterations, result.attempt):
                content.update(repr(_identity(path)).encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        content.update(repr(_identity(path)).encode())
    return content.hexdigest()


def _identity(path: Path | None) -> tuple[int, int] | None:
    try:
        status = path.stat() if path else None
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size) if status else None


def kept(folder: Path, of: str) -> list[str] | None:
    """Return the names of the pictures in a folder if they show what the digest is of."""
    try:
        drawn = read_json(folder / FILE, Drawn)
    except (OSError, ValueError):
        return None
    is_same = drawn.digest == of and all(_sizes(folder, drawn.sizes))
    return list(drawn.sizes) if is_same else None


def _sizes(folder: Path, sizes: Mapping[str, int]) -> Iterator[bool]:
    for name, size in sizes.items():
        identity = _identity(folder / Path(name).name)
        yield identity is not None and identity[1] == size


def note(of: str, files: Mapping[str, bytes]) -> bytes:
    """Return the content of `.pictures.json`."""
    return encode(Drawn(digest=of, sizes={name: len(content) for name, content in files.items()}))
