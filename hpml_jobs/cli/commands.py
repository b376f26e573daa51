"""Table of the commands, the typer program made of them, and its output streams."""

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, TextIO

from hpml_jobs.core.text import PROGRAM, printable

if TYPE_CHECKING:
    import typer


COMPLETION_VARIABLE = "_HPML_JOBS_COMPLETE"
"""Set by the shell's completion script: this run answers the shell. typer derives the name."""

COMMANDS = {
    "submit": "cli.submit:submit",
    "plan": "cli.submit:plan",
    "run": "cli.run:run",
    "fetch": "cli.run:fetch",
    "import": "cli.exchange:import_",
    "list": "cli.status:list_",
    "status": "cli.status:status",
    "logs": "cli.status:logs",
    "record": "cli.collect:record",
    "cancel": "cli.jobs:cancel",
    "resubmit": "cli.jobs:resubmit",
    "collect": "cli.collect:collect",
    "report": "cli.collect:report",
    "choose": "cli.choose:choose",
    "predict": "cli.choose:predict",
    "archive": "cli.exchange:archive",
    "export": "cli.exchange:export",
    "init": "cli.setup:init",
    "compare": "cli.compare:compare",
    "doctor": "cli.setup:doctor",
    "completion": "cli.completion:completion",
}
"""The function of every command, as module:name in this package; imported only when needed."""

UNNAMED = "submit"
"""The command of a line that names none."""

REPLACED = {
    "watch": "status --watch",
    "unpack": "import FILE.tar.gz",
    "reference": "compare --save",
    "grade": "list course/*/",
}
"""Commands that are gone, with what replaces each."""


def function_of(command: str) -> Callable[..., Any]:
    """Import and return a command's function."""
    module, _, name = COMMANDS[command].partition(":")
    function: Callable[..., Any] = getattr(import_module(f"hpml_jobs.{module}"), name)
    return function


def typer_program(names: Iterable[str] = COMMANDS) -> "typer.Typer":
    """Return a typer program with these commands."""
    import typer

    program = typer.Typer(
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    program.callback()(lambda: None)  # keeps the command's name, even if there is only one
    for name in names:
        program.command(name, hidden=name == UNNAMED)(function_of(name))
    return program


_words: list[str] = []


def remember(words: list[str]) -> None:
    """Keep the words after the program's name."""
    _words[:] = words


def repeated() -> str:
    """Return the present command as it can be typed again."""
    return shlex.join([PROGRAM, *_words])


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
