"""What was meant by a line that names no command and is no submission: a guess in one line."""

import inspect
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import get_args

from hpml_jobs.cli.commands import COMMANDS, REPLACED, UNNAMED, function_of
from hpml_jobs.cli.help import TOPICS
from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.core.text import PROGRAM, nearest

_SCRIPT = "script=train.py"

_OTHER_TOOLS = {
    "-m": "m",
    f"{UNNAMED} KEY=VALUE...": "start launch train sbatch new create bench benchmark measure scale",
    _SCRIPT: "python python3 torchrun accelerate deepspeed srun mpirun",
    "plan": "preview dryrun dry-run estimate",
    "resubmit": "retry rerun restart requeue resume",
    "cancel": "scancel kill stop abort",
    "status": "squeue sacct ps jobs queue progress state info top monitor",
    "logs": "log tail cat errors why",
    "collect": "results result show view table tables summary analyze analyse gather",
    "report": "plot plots page html pdf figures",
    "choose": "recommend best advise",
    "--help": "man usage commands",
}

MEANT: Mapping[str, str] = {
    **{word: meant for meant, words in _OTHER_TOOLS.items() for word in words.split()},
    "strategies": "help strategy",
    **{topic: f"help {topic}" for topic in TOPICS},
    **REPLACED,
}
"""Commands of earlier versions and words of other tools, each with what to type here."""

LIKENESS = 0.65
"""How much a misspelt word is like the word that is meant, at least."""

LIKENESS_TO_OTHER_TOOLS = 0.8
"""The same of words of other tools: many are short, and `scale` is no misspelt scancel."""

OF_HYDRA = ("~", "+")
"""What a key begins with that is removed or added."""

DASHES = "‐‑‒–—−"
"""What text documents make of the - of an option."""

TYPOGRAPHY = (
    ("‘’‚“”„«»", "", "the quotes of a text document"),
    (DASHES, "-", "the dash of a text document"),
    ("\u00a0\u2007\u202f", " ", "a non-breaking space"),
    ("\u00ad\u200b\ufeff", "", "an invisible character"),
)
"""Characters that are copied from a document, what a shell needs in their place, their name."""

_OF_A_KEYBOARD = {
    ord(character): typed
    for characters, typed, _ in TYPOGRAPHY
    for character in characters
}

OPTIONS_OF_TEXT = ("--name",)
"""Options whose value may have such characters."""


def refuse_typography(words: Sequence[str]) -> None:
    """Raise UsageError if an option, a name or a value has characters of a text document.

    Texts, as the values of args= and of --name, may have them, and so may the name of a file.
    """
    before = ""
    for word in words:
        if word[:1] and word[0] in DASHES:
            name = word.lstrip(f"-{DASHES}")
            option = f"-{name}" if len(name) == 1 else f"--{name}"
            raise UsageError(
                f"{word} begins with the dash of a text document: write {option}"
            )
        if before not in OPTIONS_OF_TEXT and not _is_read_later(word):
            _refuse_characters(word)
        before = word


def _is_read_later(word: str) -> bool:
    """Return whether a word gives a key a text, or numbers such as 1–4: the key's reader judges."""
    key, is_pair, value = word.partition("=")
    if not is_pair or key in ("study", "script"):
        return False
    from hpml_jobs.plan.key_types import type_of

    kind = type_of(key)
    return str in (kind, *get_args(kind)) or not set(DASHES).isdisjoint(value)


def _refuse_characters(word: str) -> None:
    kinds = [kind for characters, _, kind in TYPOGRAPHY if set(characters) & set(word)]
    if kinds and not Path(word).exists():
        plain = word.translate(_OF_A_KEYBOARD)
        raise UsageError(
            f"{word} has {' and '.join(kinds)}: write {shlex.join(plain.split())}"
        )


def refuse_other(words: Sequence[str]) -> None:
    """Raise UsageError if the words of a submission are something else; it says what was meant."""
    first = words[0]
    if first.startswith("-"):
        near = nearest(first.lstrip("-"), COMMANDS, cutoff=0.75)
        if near and "=" not in first:
            raise UsageError(_not_a_command(first, near))
    elif "=" not in first and first[:1] not in OF_HYDRA and (meant := _meant(words)):
        raise UsageError(meant)
    _refuse_late_command(words)


def refuse_misspelt(word: str) -> None:
    """Raise UsageError if a word stands for a command, or is almost one."""
    if meant := _command_meant(word):
        raise UsageError(_not_a_command(word, meant))


def _not_a_command(word: str, meant: str) -> str:
    return f"{word} is not a command; did you mean {meant}?"


def _command_meant(word: str) -> str:
    if word in MEANT:
        return MEANT[word]
    if command := nearest(word, (*COMMANDS, "help"), LIKENESS):
        return command
    return MEANT.get(nearest(word, MEANT, LIKENESS_TO_OTHER_TOOLS) or "", "")


def _meant(words: Sequence[str]) -> str:
    """Return what was meant by words of which the first is no key=value; empty: not known."""
    from hpml_jobs.plan.key_types import type_of

    first = words[0]
    if script := _script(words):
        return _not_a_command(first, script)
    if study := _study(first):
        command = next((word for word in words[1:] if word in COMMANDS), "status")
        return f"{first} is a study; did you mean {command} {study}?"
    if first.endswith(".csv"):
        return _not_a_command(first, f"import {shlex.quote(first)} study=NAME")
    if type_of(first) is not None:
        if first in MEANT:
            return _not_a_command(first, f"{MEANT[first]}, or {first}=VALUE")
        return ""  # the parser says how to write a key
    if first not in MEANT and (pair := _pair(first)):
        return _not_a_command(first, pair)
    meant = _command_meant(first)
    return _not_a_command(first, meant) if meant else ""


def _script(words: Sequence[str]) -> str:
    """Return the keys that start the script that words name, as a shell does; empty: none."""
    files = [number for number, word in enumerate(words) if word.endswith(".py")]
    if not files or (files[0] > 0 and MEANT.get(words[0]) != _SCRIPT):
        return ""
    script = shlex.quote(f"script={words[files[0]]}")
    options = words[files[0] + 1 :]
    if not options or not options[0].startswith("--"):
        return script
    return f"{script} {shlex.quote(f'args={shlex.join(options)}')}"


def _study(word: str) -> str:
    """Return the word by which a command finds a study of this name or folder; empty: none."""
    from hpml_jobs.plan.user_config import user_outputs
    from hpml_jobs.study.selection import find

    with suppress(HpmlError):
        find(user_outputs().expanduser(), word)
        return shlex.quote(word)
    return ""


def _pair(word: str) -> str:
    """Return the key with a word that is a value of it; empty if it is none."""
    from hpml_jobs.cli.entries import Entries
    from hpml_jobs.core.paths import conf_folder

    return next(iter(Entries([conf_folder()]).pairs(word)), "")


def _refuse_late_command(words: Sequence[str]) -> None:
    """Raise UsageError if a command comes after keys: the first word alone names it."""
    before = ""
    for word in words:
        if word in COMMANDS and before != "--config-dir":
            takes_keys = "overrides" in inspect.signature(function_of(word)).parameters
            rest = [other for other in words if other != word and takes_keys]
            line = shlex.join([PROGRAM, word, *rest])
            raise UsageError(f"{word} is a command and comes first: {line}")
        before = word
