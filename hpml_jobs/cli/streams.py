"""Standard output and error of a command: without control characters, or discarded."""

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from hpml_jobs.core.text import printable

_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")
"""A colour of a terminal."""


class _Printed:
    """A stream that takes control characters out of what is printed on it."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        parts = _COLOUR.split(text)  # the help pages of typer have colours
        parts[::2] = map(printable, parts[::2])
        self.stream.write("".join(parts))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextlib.contextmanager
def without_control_characters() -> Iterator[None]:
    """Take control characters out of what is printed in the `with` block."""
    printed: Any = [stream and _Printed(stream) for stream in (sys.stdout, sys.stderr)]
    with contextlib.redirect_stdout(printed[0]), contextlib.redirect_stderr(printed[1]):
        yield  # a stream that was closed is None


def discard(stream: TextIO) -> None:
    """Send what is written to a stream from now on nowhere: its reader has left, or it is full."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
