"""The words of the present command line, for messages that say how to repeat it."""

import shlex

from hpml_jobs.cli.commands import PROGRAM

_words: list[str] = []


def remember(words: list[str]) -> None:
    """Keep the words after the program's name."""
    _words[:] = words


def repeated() -> str:
    """Return the present command as it can be typed again."""
    return shlex.join([PROGRAM, *_words])
