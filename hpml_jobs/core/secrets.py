r"""Passwords, tokens and keys are not shown: what follows their names is `***`.

Names end with one of the words of `_WORDS`: `--wandb-key VALUE`, `HF_TOKEN=VALUE`, `password:
VALUE`. A plain number is a secret only of a password: `--max-tokens 4096` is shown.
"""

import re
import shlex

HIDDEN = "***"

_WORDS = (
    r"(?:(?i:token|secret|passw(?:or)?d|credential|api_?key|(?<![a-z])(?:key|auth))"
    r"|(?<=[a-z])(?:Key|Auth))s?"
)
"""What names of secrets end with; `monkey` and `pkey` are none."""

SECRET_VARIABLE = re.compile(_WORDS)
"""Part of the name of an environment variable that is not recorded."""

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


def is_secret(name: str, value: str) -> bool:
    """Return whether a value is hidden because of its name."""
    if not _NAME.fullmatch(name):
        return False
    return "passw" in name.lower() or not _NUMBER.fullmatch(value.strip("\\\"'"))


def shown_value(name: str, value: str) -> str:
    """Return a value as it is shown below its name."""
    return HIDDEN if is_secret(name, value) else hide_secrets(value)


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
    return f"{name}{between}{HIDDEN if is_secret(name, value) else value}"


def hide_in_command(command: str) -> str:
    """Return a command line with `***` for the secrets in its words; it can be typed again."""
    try:
        words = shlex.split(command)
    except ValueError:  # its quotes are not closed: the line was damaged
        return hide_secrets(command)
    shown = [hide_secrets(word) for word in words]
    return command if shown == words else shlex.join(shown)
