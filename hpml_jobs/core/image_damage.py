"""Files that cannot be images, judged without Pillow, which login nodes do not have."""

from pathlib import Path

_JPEG, _PNG = b"\xff\xd8", b"\x89PNG\r\n\x1a\n"
_ENDS = {_JPEG: b"\xff\xd9", _PNG: b"IEND"}
"""What files that begin so have near their end; other data may follow."""

_OTHER_STARTS = (
    *(b"GIF8", b"BM", b"II*\0", b"MM\0*", b"\0\0\1\0", b"RIFF", b"8BPS", b"DDS "),
    *(b"\0\0\0\x0cjP", b"\xff\x4f\xff\x51"),
    *(b"P1", b"P2", b"P3", b"P4", b"P5", b"P6", b"P7", b"Pf"),
)
"""First bytes of other formats that Pillow reads, whatever the name of the file says."""


def fault_of(file: Path) -> str | None:
    """Return why a file cannot be an image: empty, unreadable, truncated; None: it may be one."""
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
