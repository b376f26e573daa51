r"""Passwords, tokens and keys are not shown: what follows their names is `***`.

Names end with one of the words of `_WORDS`: `--wandb-key VALUE`, `HF_TOKEN=VALUE`, `password:
VALUE`. A plain number is a secret only of a password: `--max-tokens 4096` is shown.
"""

import re
import shlex
from typing import TypeVar

HIDDEN = "***"

T = TypeVar("T")

_WORDS = (
    r"(?:(?i:token|secret|passw(?:or)?d|credential|api_?key|(?<![a-z])(?:key|auth))"
    r"|(?<=[a-z])(?:Key|Auth))s?"
)
"""What names of secrets end with; `monkey` and `pkey` are none."""

_NAME = re.compile(rf"[\w.-]*{_WORDS}")

_NUMBER = re.compile(r"[+-]?\d[\d.,e+-]*|\{\w+\}", re.IGNORECASE)
"""A number or a placeholder."""

_VALUE = r"""(?P<value>\*{3}|\\?"[^"]*"|'[^']*'|[^\s"']+)"""

_OPTION = re.compile(
    rf"""(?<![\w.-])(?P<name>-[\w.-]*{_WORDS})(?P<between>["']?[\s,]+(?!-)){_VALUE}"""
)
_PAIR = re.compile(
    rf"""(?<![\w.-])(?P<name>[\w.-]*{_WORDS})(?P<between>\\?["']?\s*[=:]\s*(?!--)){_VALUE}"""
)
"""`--token VALUE`, also in a list of words; `token=VALUE`, `token: VALUE`, `"token": "VALUE"`."""


def is_secret_variable(name: str) -> bool:
    """Return whether an environment variable is not recorded: any part of its name is a word."""
    return _NAME.match(name) is not None


def _is_secret(name: str, value: str) -> bool:
    if not _NAME.fullmatch(name):
        return False
    return "passw" in name.lower() or not _NUMBER.fullmatch(value.strip("\\\"'"))


def shown_value(name: str, value: T) -> T | str:
    """Return a value as it is shown below its name."""
    if _is_secret(name, str(value)):
        return HIDDEN
    return hide_secrets(value) if isinstance(value, str) else value


def hide_secrets(text: str) -> str:
    """Return a text with `***` for each value after the name of a secret.

    >>> hide_secrets("--token abcd --lr 0.1 --max-tokens 4096 export HF_TOKEN=abcd")
    '--token *** --lr 0.1 --max-tokens 4096 export HF_TOKEN=***'
    """
    for form in (_OPTION, _PAIR):
        text = form.sub(_shown, text)
    return text


def _shown(match: re.Match[str]) -> str:
    name, between, value = match["name"], match["between"], match["value"]
    return f"{name}{between}{HIDDEN if _is_secret(name, value) else value}"


def hide_in_command(command: str) -> str:
    """Return a command line with `***` for the secrets in its words; it can be typed again."""
    try:
        words = shlex.split(command)
    except ValueError:  # its quotes are not closed: the line was damaged
        return hide_secrets(command)
    shown = [*map(hide_secrets, words)]
    return command if shown == words else shlex.join(shown)
