"""Entry of the command line: run a command; a line that names none submits a study."""

import errno
import gc
import os
import sys
from pathlib import Path

from hpml_jobs.cli.commands import (
    COMMANDS,
    COMPLETION_VARIABLE,
    GONE,
    UNNAMED,
    typer_program,
)
from hpml_jobs.cli.terminal import discard, printed_plainly, remember
from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.core.paths import conf_folder
from hpml_jobs.core.text import PROGRAM, VERSION, in_one_line, nearest

LIKENESS = 0.65
"""How much a misspelt command is like the one that is meant, at least."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells."""

ALLOCATIONS = 1_000_000
"""Objects between two garbage collections: records have no cycles, and there may be thousands."""

HELP = frozenset(("-h", "--help", "help"))

COMPLETION = frozenset(("--install-completion", "--show-completion"))


def run(words: list[str]) -> int:
    """Prepare the streams, run one command line and return its exit code."""
    remember(words)
    gc.set_threshold(ALLOCATIONS)
    with printed_plainly():
        return _run(words)


def _run(words: list[str]) -> int:
    """Run the command and return the exit code; an HpmlError becomes one line on stderr."""
    try:
        _check_current_folder()
        code = _dispatch(words or ["--help"])
        if sys.stdout:  # else it was closed
            sys.stdout.flush()
        return code
    except HpmlError as error:
        print(f"{PROGRAM}: {in_one_line(str(error))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe has left
        discard(sys.stdout)
        return 0
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        discard(sys.stdout)
        print(
            f"{PROGRAM}: {error.filename or 'the output'}: {error.strerror}",
            file=sys.stderr,
        )
        return 1
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1


def _check_current_folder() -> None:
    try:
        Path.cwd()
    except FileNotFoundError as fault:
        raise HpmlError("the current folder was removed: cd to another one") from fault


def _dispatch(words: list[str]) -> int:
    first, names_command = words[0], words[0] in COMMANDS
    if COMPLETION_VARIABLE in os.environ or first in COMPLETION:
        return typer_program()(words[:1], prog_name=PROGRAM) or 0
    if not names_command and not HELP.isdisjoint(words):
        return _help(words)
    if first in ("-V", "--version", "version"):
        print(f"hpml_jobs {VERSION}")
        return 0
    if not names_command:
        _refuse_no_command(first)
        words = [UNNAMED, *words]
    return _run_command(words)


def _refuse_no_command(word: str) -> None:
    """Raise UsageError if the first word is neither an option nor a key with its value."""
    if word in GONE:
        raise UsageError(f"{word} is not a command any more: {GONE[word]}")
    if "=" in word or word.startswith(("-", "~", "+")):
        return
    near = nearest(word, COMMANDS, LIKENESS)
    hint = f"did you mean {near}?" if near else f"{PROGRAM} --help lists them"
    raise UsageError(f"{word} is not a command: {hint}")


def _help(words: list[str]) -> int:
    """Print the first page, or that of a topic (`help keys`), a command or another word."""
    from hpml_jobs.cli.help import PAGE, TOPICS, WHOLE_PAGE, entry, explanations, topic

    is_whole = "--all" in words
    words = [word for word in words if word != "--all"]
    named = words[1] if words[0] == "help" and words[1:] else ""
    if named in TOPICS:
        print(topic(named, conf_folder(), is_whole=is_whole), end="")
    elif named in COMMANDS:
        print(explanations().get(named, ""), end="")
        return _run_command([named, "--help"])
    elif named:
        print(entry(named, conf_folder()), end="")
    else:
        page = WHOLE_PAGE if is_whole else PAGE
        print(page.format(version=VERSION), end="")
    return 0


def _run_command(words: list[str]) -> int:
    """Run one of the commands; an error in its options becomes a UsageError."""
    from typer.exceptions import TyperException

    try:
        program = typer_program([words[0]])
        code: int = program(words, prog_name=PROGRAM, standalone_mode=False) or 0
    except TyperException as error:
        shown = getattr(error, "format_message", None)
        text = (shown() if shown else str(error)).removesuffix(".")
        raise UsageError(f"{text} ({PROGRAM} {words[0]} --help)") from error
    if code == INTERRUPTED:  # typer returns this after Ctrl-C
        raise KeyboardInterrupt
    return code
