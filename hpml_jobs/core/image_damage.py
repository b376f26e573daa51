"""Files that cannot be images, judged without Pillow by their first and last bytes."""

import os
from pathlib import Path
from typing import BinaryIO

_STARTS = (
    *(
        b"GIF8",
        b"BM",
        b"II*\0",
        b"MM\0*",
        b"\0\0\0\x0cjP",
        b"\xff\x4f\xff\x51",
        b"\0\0\1\0",
    ),
    *(b"P1", b"P2", b"P3", b"P4", b"P5", b"P6", b"P7", b"Pf", b"8BPS", b"DDS "),
)
"""First bytes of other formats that Pillow reads, whatever the name of the file says."""

_JPEG, _JPEG_END, _JPEG_SCAN = b"\xff\xd8", b"\xff\xd9", 0xDA
_PNG, _PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND"


def fault_of(file: Path) -> str | None:
    """Return why a file cannot be an image: empty, unreadable, truncated; None: it may be one.

    Without Pillow, which login nodes do not have: it is judged by its first and last bytes.
    """
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
