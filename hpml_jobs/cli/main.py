"""Entry of the command line: run a command; a line that names none submits a study."""

import codecs
import errno
import gc
import inspect
import io
import itertools
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hpml_jobs import __version__
from hpml_jobs.cli.commands import (
    COMMANDS,
    COMPLETION_VARIABLE,
    GONE,
    UNNAMED,
    discard,
    function_of,
    remember,
    typer_program,
    without_control_characters,
)
from hpml_jobs.cli.guesses import (
    LIKENESS,
    MEANT,
    refuse_misspelt,
    refuse_other,
    refuse_typography,
)
from hpml_jobs.core.errors import HpmlError, UsageError, example
from hpml_jobs.core.paths import conf_folder
from hpml_jobs.core.text import PROGRAM, in_one_line, nearest

if TYPE_CHECKING:
    from typer.exceptions import TyperException

INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells."""

ALLOCATIONS = 1_000_000
"""Objects between two garbage collections: records have no cycles, and there may be thousands."""

HELP = frozenset(("-h", "--help", "help"))

HYDRA_PAGES = frozenset(("--cfg", "-c", "--info", "-i", "--shell-completion", "-sc"))

_PLAIN_TEXT = f"{PROGRAM}.plain"
_PLAIN = {
    **dict.fromkeys("│┃", "|"),
    **dict.fromkeys("─━–—", "-"),
    **dict.fromkeys("█▉▊▋▌", "#"),
    **dict.fromkeys("▍▎▏", " "),
    **{"┼": "+", "·": ".", "•": "*", "×": "x", "µ": "u", "…": "..."},
}
"""What a console without these characters shows in their place."""


def _plain(fault: UnicodeError) -> tuple[str, int]:
    """Return plain text for characters that a console cannot show, and where they end."""
    if not isinstance(fault, UnicodeEncodeError):
        raise fault
    characters = fault.object[fault.start : fault.end]
    return "".join(_PLAIN.get(character, "?") for character in characters), fault.end


codecs.register_error(_PLAIN_TEXT, _plain)


def run(words: list[str]) -> int:
    """Prepare the streams, run one command line and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_PLAIN_TEXT)
    remember(words)
    gc.set_threshold(ALLOCATIONS)
    with without_control_characters():
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
    if COMPLETION_VARIABLE in os.environ:
        from hpml_jobs.cli.completion import answer

        return answer(typer_program())
    refuse_typography(words)
    first, names_command = words[0], words[0] in COMMANDS
    if not names_command and not HELP.isdisjoint(words):
        if first in MEANT:
            refuse_misspelt(first)
        return _help(words)
    if first in ("-V", "--version", "version"):
        print(f"hpml_jobs {__version__}")
        return 0
    if not HYDRA_PAGES.isdisjoint(words):
        _show_hydra_page(words[names_command:])
        return 0
    if first in GONE:
        raise UsageError(f"{first} is not a command any more: {GONE[first]}")
    if not names_command:
        refuse_other(words)
        words = [UNNAMED, *words]
    return _run_command(words)


def _show_hydra_page(words: list[str]) -> None:
    from hpml_jobs.plan.composer import hydra_page

    sys.argv[1:] = [word for word in words if word not in ("-m", "--multirun")]
    hydra_page()


def _help(words: list[str]) -> int:
    """Print the first page, or that of a topic (`help keys`), a command or other words."""
    from hpml_jobs.cli.help import TOPICS, first_page, topic

    typed = words[1:] if words[0] == "help" else []
    before_options = itertools.takewhile(lambda word: not word.startswith("-"), typed)
    named = " ".join(before_options).lower()
    folders = [conf_folder(), *_config_dirs(words)]
    if named in TOPICS:
        print(topic(named, folders), end="")
    elif named in COMMANDS:
        return _run_command([named, "--help"])
    elif named:
        print(_entry(named, folders), end="")
    else:
        print(first_page(__version__, COMMANDS.values()), end="")
    return 0


def _entry(phrase: str, folders: list[Path]) -> str:
    """Return the entries of a phrase, else of its words: terms, checks, keys and values.

    Raises:
        UsageError: there is none; the message names what is most alike.
    """
    from hpml_jobs.cli.entries import Entries
    from hpml_jobs.cli.help import TOPICS, check_explanation, explanations

    entries, terms = Entries(folders), explanations()
    words = phrase.split()
    whole = (phrase, "_".join(words), "-".join(words), phrase.replace("-", " "))
    for names in (whole, words):
        parts: list[str] = []
        for name in names:
            term = terms.get(name) or terms.get(name.removesuffix("s"), "")
            parts += [term, check_explanation(name), entries.entry(name)]
        if any(parts):
            return "\n".join(filter(None, dict.fromkeys(parts)))
    if phrase == "help":
        raise UsageError(
            f"help on what? e.g. {PROGRAM} help gpus; {PROGRAM} --help lists the commands"
        )
    if phrase in MEANT:
        raise UsageError(f"no help on {phrase}: did you mean {MEANT[phrase]}?")
    with_help = (*COMMANDS, *TOPICS, *terms, *entries.words())
    for name in (phrase, *words):
        if near := nearest(name, with_help, cutoff=0.7):
            command = f"{PROGRAM} help {near}"
            raise UsageError(f"no help on {phrase}: did you mean {command}?")
    topics = ", ".join(TOPICS)
    raise UsageError(
        f"no help on {phrase}: name a command, a key, a value, a term of docs/words.md, or "
        f"{topics}; docs/README.md lists the pages by task"
    )


def _config_dirs(words: list[str]) -> list[Path]:
    """Return the folder after --config-dir, if the words name one."""
    pairs = itertools.pairwise(words)
    return [Path(folder) for word, folder in pairs if word == "--config-dir"]


def _run_command(words: list[str]) -> int:
    """Run one of the commands; an error in its options becomes a UsageError."""
    from typer.exceptions import TyperException

    program, words = typer_program([words[0]]), _in_one_form(words)
    try:
        code: int = program(words, prog_name=PROGRAM, standalone_mode=False) or 0
    except TyperException as error:
        _forget_unlike(error)
        text = (
            error.format_message() if hasattr(error, "format_message") else str(error)
        )
        text = text.replace(" is not a valid int", ": a whole number is needed")
        text = text.replace(" is not a valid float", ": a number is needed")
        if "study" in inspect.signature(function_of(words[0])).parameters:
            text = _EXTRA.sub(rf"one study at a time: {PROGRAM} {words[0]} \1", text)
        remedy = _remedy(words) if "No such option" in text else ""
        hint = f". {remedy}" if remedy else f" ({PROGRAM} {words[0]} --help)"
        raise UsageError(f"{text.removesuffix('.')}{hint}") from error
    if code == INTERRUPTED:  # typer returns this after Ctrl-C
        raise KeyboardInterrupt
    return code


def _in_one_form(words: list[str]) -> list[str]:
    """Return the words with outputs and minutes as their command takes them: option or key.

    `--outputs FOLDER` and `outputs=FOLDER` are the same for every command. Those that read studies
    have the option, those with the keys of a study the key.
    """
    options = inspect.signature(function_of(words[0])).parameters
    command, *arguments = words
    changed = [command]
    remaining = iter(arguments)
    for word in remaining:
        name, is_pair, value = word.partition("=")
        if name in ("outputs", "minutes") and is_pair and name in options:
            if not value:
                raise UsageError(f"{word}: it has no value")
            changed += [f"--{name}", value]
        elif name == "--outputs" and "outputs" not in options:
            folder = value if is_pair else next(remaining, "")
            changed.append(f"outputs={folder}")
        else:
            changed.append(word)
    return changed


def _forget_unlike(error: "TyperException") -> None:
    """Leave only options that are much like the one that does not exist: not --wait for --quiet."""
    option = getattr(error, "option_name", "")
    possible = getattr(error, "possibilities", None) or ()
    likely = nearest(
        option.lstrip("-"), [name.lstrip("-") for name in possible], LIKENESS
    )
    if possible:
        vars(error)["possibilities"] = [f"--{likely}"] if likely else []


_EXTRA = re.compile(r"Got unexpected extra argument\(s\) \((\S+).*\)")
"""The words of typer."""


def _remedy(words: list[str]) -> str:
    """Return what to type instead of an option that is a key elsewhere; empty if none is."""
    from hpml_jobs.cli.completion import keys_of
    from hpml_jobs.plan.key_types import type_of

    keys = keys_of(words[0])
    takes_settings = "overrides" in inspect.signature(function_of(words[0])).parameters
    for word, following in itertools.pairwise([*words, ""]):
        option, is_pair, value = word.partition("=")
        if not option.startswith("--"):
            continue
        key = option.removeprefix("--").replace("-", "_")
        if key in COMMANDS:
            return f"Write {PROGRAM} {key}"
        is_setting = type_of(key) is not None
        if key in keys or (is_setting and takes_settings):
            if not is_pair:
                value = "VALUE" if following[:1] in ("", "-") else following
            return f"Write {key}={value}{example(key) if value == 'VALUE' else ''}"
        owners = [name for name in COMMANDS if key in keys_of(name)]
        owners += ["submissions"] if is_setting else []
        if owners:
            return f"{key}=VALUE is a key of {' and '.join(owners)}"
    return ""
