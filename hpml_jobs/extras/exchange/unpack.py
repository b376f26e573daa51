"""A study from its archive: every name, size and hash is checked before the study appears."""

import gzip
import hashlib
import io
import os
import re
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Self

from hpml_jobs import __version__
from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.extras.exchange.archive import MEMBERS, SCHEMA, ArchiveNote
from hpml_jobs.study.files import open_regular, read_bytes, read_json, reason_of
from hpml_jobs.study.selection import check_name
from hpml_jobs.study.study import SUMS, Study

MOST_FILES = 200_000
"""Files of an archive; a cell has about 6."""

MOST_RATIO = 100
"""Unpacked bytes per byte of the archive; records are packed to a tenth."""

ALWAYS_BYTES = 64 * 2**20
"""Unpacked bytes that any archive may have."""

HEADER_BYTES = 16_384
"""The longest header with a name, a link or times; a path has 4,096 bytes at most."""

_LONG_HEADERS = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)

_CHUNK = 1 << 20
_LATEST = 4_102_444_800  # the year 2100, in seconds since 1970

_SUM = re.compile(r"(?P<digest>[0-9a-f]{64})  (?P<name>.+)")


class _BoundedReader(io.RawIOBase):
    """A decompressed stream that ends with an error after too many bytes."""

    def __init__(self, stream: gzip.GzipFile, most: int) -> None:
        self._stream, self._left = stream, most

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes.

        Raises:
            HpmlError: there are more than allowed.
        """
        wanted = self._left + 1 if size < 0 else min(size, self._left + 1)
        content = self._stream.read(wanted)
        self._left -= len(content)
        if self._left < 0:
            raise HpmlError(f"it unpacks to more than {MOST_RATIO} times its size")
        return content


class _BoundedHeader(tarfile.TarInfo):
    """A header of an archive; Python before 3.11.10 and 3.12.6 reads long ones for minutes."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Return the header in a block.

        Raises:
            HpmlError: it announces a header of names and times that is too long.
        """
        header = super().frombuf(buf, encoding, errors)
        if header.type in _LONG_HEADERS and header.size > HEADER_BYTES:
            raise HpmlError(
                f"a header has {header.size:,} bytes, more than {HEADER_BYTES:,}"
            )
        return header


def unpack(file: Path, outputs: Path) -> tuple[Study, ArchiveNote]:
    """Make a study in `outputs` from an archive, and return it with what the archive says of it.

    Raises:
        HpmlError: it is no archive of a study, is damaged or hostile, or a study of its name is
            there already.
    """
    try:
        outputs.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unpack-", dir=outputs) as staging:
            folder = _extracted(file, Path(staging), outputs)
            note = _verified(folder)
            target = outputs / folder.name
            _refuse_existing(target)
            folder.rename(target)
    except (
        tarfile.TarError,
        zlib.error,
        gzip.BadGzipFile,
        EOFError,
        ValueError,
    ) as fault:
        raise HpmlError(
            f"{file} is not an archive of a study, or is damaged: {fault}"
        ) from fault
    except OSError as fault:
        place = fault.filename or file
        raise HpmlError(f"{place}: {reason_of(fault)}") from fault
    except HpmlError as fault:
        raise HpmlError(f"{file} was not unpacked: {fault}") from fault
    return Study(target), note


def _refuse_existing(target: Path) -> None:
    if target.exists() or target.is_symlink():
        raise HpmlError(
            f"{target} exists: rename it, or unpack into another folder with --outputs FOLDER"
        )


def _extracted(file: Path, staging: Path, outputs: Path) -> Path:
    """Write the files of an archive below `staging`; return the folder of the study."""
    with open_regular(file) as packed:
        size = os.fstat(packed.fileno()).st_size
        stream = _BoundedReader(
            gzip.GzipFile(fileobj=packed), ALWAYS_BYTES + MOST_RATIO * size
        )
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_BoundedHeader) as tar:
            top = None
            for name, member in _files(tar):
                if top is None:
                    top = PurePosixPath(member.name).parts[0]
                    _refuse_existing(outputs / _study_name(top))
                if not member.name.startswith(f"{top}/"):
                    raise HpmlError(f"{_shown(member.name)} is not below {top}/")
                _write(tar, member, staging / top / name)
    if top is None:
        raise HpmlError("it has no file")
    return staging / top


def _files(tar: tarfile.TarFile) -> Iterator[tuple[str, tarfile.TarInfo]]:
    """Yield name (below the study's folder) and header of each file that a study may have, once."""
    names: set[str] = set()
    for member in tar:
        if member.isdir():
            continue
        name = _name(member)
        if name in names:
            raise HpmlError(f"{name} is in it twice")
        names.add(name)
        if len(names) > MOST_FILES:
            raise HpmlError(f"it has more than {MOST_FILES:,} files")
        yield name, member


def _name(member: tarfile.TarInfo) -> str:
    """Return the name of a file below the study's folder."""
    if not member.isfile() or member.issparse():
        raise HpmlError(f"{_shown(member.name)} is a link or a device, not a file")
    name = member.name.partition("/")[2]
    if not MEMBERS.fullmatch(name):
        raise HpmlError(f"{_shown(member.name)} is no file of a study")
    return name


def _study_name(text: str) -> str:
    try:
        return check_name(text)
    except UsageError:
        raise HpmlError(f"{_shown(text)} is not the name of a study") from None


def _shown(name: str) -> str:
    """Return a name that an archive has, as one short printable word."""
    return ascii(name[:100])


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    """Write one file with the time that the archive has for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source = tar.extractfile(member)
    with path.open("xb") as file:
        while source is not None and (chunk := source.read(_CHUNK)):
            file.write(chunk)
    moment = min(max(0.0, float(member.mtime)), _LATEST)
    os.utime(path, (moment, moment))


def _verified(folder: Path) -> ArchiveNote:
    """Return what the archive says of the study, once every file has its hash.

    Raises:
        HpmlError: a file is missing, was added or changed, or this version cannot read it.
    """
    expected = _expected_hashes(folder / SUMS)
    present = {
        path.relative_to(folder).as_posix(): path
        for path in folder.rglob("*")
        if path.is_file()
    }
    present.pop(SUMS, None)
    for name in sorted(expected.keys() | present.keys()):
        if name not in present:
            raise HpmlError(f"{name} is missing")
        if name not in expected:
            raise HpmlError(f"{name} is not in {SUMS}")
        with present[name].open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != expected[name]:
                raise HpmlError(f"{name} was changed after it was packed (SHA-256)")
    return _note(folder)


def _expected_hashes(path: Path) -> dict[str, str]:
    if not path.exists():
        raise HpmlError(f"it has no {SUMS}: it is no archive of hpml-jobs")
    lines = read_bytes(path, ALWAYS_BYTES).decode().splitlines()
    parsed = [_SUM.fullmatch(line) for line in lines]
    if None in parsed:
        raise HpmlError(f"line {parsed.index(None) + 1} of {SUMS} is no hash of a file")
    return {match["name"]: match["digest"] for match in parsed if match}


def _note(folder: Path) -> ArchiveNote:
    path = folder / "archive.json"
    if not path.exists() or not (folder / "cells").is_dir():
        raise HpmlError(
            "it has no archive.json or no cell: it is no archive of hpml-jobs"
        )
    schema = read_json(path, dict).get("schema")
    if not isinstance(schema, int) or schema > SCHEMA:
        raise HpmlError(
            f"its schema is {schema}, this hpml_jobs {__version__} reads up to {SCHEMA}: use a "
            "newer hpml_jobs"
        )
    Study(folder).check_schema()
    return read_json(path, ArchiveNote)
