"""The words that were typed, and the streams that a command prints on."""

import contextlib
import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from typing import IO, Any, TextIO

from hpml_jobs.core.secrets import hide_in_command
from hpml_jobs.core.text import PROGRAM, printable

_words: list[str] = []


def remember(words: list[str]) -> None:
    """Keep the words after the program's name."""
    _words[:] = words


def repeated() -> str:
    """Return the present command without secrets."""
    return hide_in_command(shlex.join([PROGRAM, *_words]))


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
def printed_plainly() -> Iterator[None]:
    """Take out of what is printed in the `with` block what a console cannot show or obeys."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    printed: Any = [stream and _Printed(stream) for stream in (sys.stdout, sys.stderr)]
    with contextlib.redirect_stdout(printed[0]), contextlib.redirect_stderr(printed[1]):
        yield  # a stream that was closed is None


def discard(stream: IO[str]) -> None:
    """Send what is written to a stream from now on nowhere: its reader has left, or it is full."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
