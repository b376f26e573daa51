"""The options of a script that cannot be judged: their values may be secrets."""

import re

from hpml_jobs.core.script import REMOVED
from hpml_jobs.study.arguments import PublicArguments, words_of
from hpml_jobs.study.secret_forms import may_be_secret

_SEVERAL_TURNS = re.compile(r"(?i)(?![/.~]).*(?:[a-z]\W*\d.*[a-z]|\d\W*[a-z].*\d)")
"""Letters and digits in turns, as in a secret, unlike `resnet50` and paths."""

_LOGIN = re.compile(r"[\w.@-]+:[^/\s]{4,}")
"""`user:password`, perhaps."""


def unjudged_options(arguments: str) -> list[str]:
    """Return the options of a script whose values may be secrets, and words without an option.

    Nothing before them and nothing in their form says what they are.

    >>> unjudged_options("--model resnet50 --user ada:hunter2x --run=a1b2c3d4 0123ab4d --key x1y")
    ['--user', '--run', '0123…']
    """
    words = words_of(PublicArguments([arguments]).text(arguments))
    options = []
    for before, word in zip(["", *words], words, strict=False):
        name, value = _option(word)
        if not _is_unjudged(value):
            continue
        if name:
            options.append(name)
        elif before.startswith("-") and "=" not in before:
            options.append(before)
        else:
            options.append(f"{word[:4]}…")
    return list(dict.fromkeys(options))


def _option(word: str) -> tuple[str, str]:
    """Return the name and value of `name=value`; of another word, no name and the word."""
    name, _, value = word.partition("=")
    if value.strip("=") and re.fullmatch(r"[\w.+~-]+", name):
        return name, value
    return "", word


def _is_unjudged(value: str) -> bool:
    if value.startswith("-") or REMOVED[:-1] in value:
        return False
    if _LOGIN.fullmatch(value):
        return True
    return may_be_secret(value) and _SEVERAL_TURNS.match(value) is not None
