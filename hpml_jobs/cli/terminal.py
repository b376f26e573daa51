"""Output to a terminal: texts of files and of others may not control it."""

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from rich.console import Console as RichConsole
from rich.segment import Segment

from hpml_jobs.core.text import printable

_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")


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
    printed: Any = _Printed(sys.stdout), _Printed(sys.stderr)
    with contextlib.redirect_stdout(printed[0]), contextlib.redirect_stderr(printed[1]):
        yield


class Console(RichConsole):
    """A console of rich: its own colours reach the terminal, control characters of texts do not."""

    def __init__(self, *, stderr: bool = False, **options: Any) -> None:
        stream: Any = sys.stderr if stderr else sys.stdout
        super().__init__(file=getattr(stream, "stream", stream), **options)

    def render(self, *arguments: Any, **options: Any) -> Iterable[Segment]:
        """Yield the parts of what is printed."""
        for segment in super().render(*arguments, **options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))
