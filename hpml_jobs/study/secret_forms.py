"""The forms of passwords, tokens and keys in texts: by the name before them, or by themselves."""

import re

from hpml_jobs.core.environment import CREDENTIAL_WORDS

# Markdown and LaTeX write \_
_NAME = CREDENTIAL_WORDS.replace("[_-]?", r"(?:\\?[_-])?")
_VALUE = r"""(?:(?<=')[^'\n]+(?=')|(?<=")[^"\n]+(?=")|[^\s"',;}]{4,})"""
_QUOTES = r"""["'\\]*+"""  # several: of a word inside of a quoted word
SWITCH = r"(?:true|false|yes|no|none|null|auto|on|off)(?=[\s\"',;\])}]|$)|\\?\[removed|\{\w+\}"
NUMBER = r"(?:\d{1,7}|\d[\d.,]*[.,][\d.,]*|[\d.]+e[+-]?\d+)(?=[\s\"',;\])}]|$)"
NO_VALUE = rf"(?!{NUMBER}|{SWITCH})"
"""Numbers, switches, placeholders and what was removed already are no secrets."""

_PASSWORDS = (
    r"(?:[\w.\\-]{0,40}(?:passw(?:or)?d|passphrase|passcode|secret|credential)s?"
    r"|(?:[\w.\\-]{0,40}[._-])?(?:pw|pwd|pin|otp))"
)
_KEYS = (
    r"(?:[\w.\\-]{0,40}(?:token|key)s?"
    r"|(?:[\w.\\-]{0,40}[._-])?(?:o?auth|authori[sz]ation|authentication|pass|licen[cs]e|cookies?"
    r"|session|sid|jwt|pat|sas|dsn|signature|webhook|bearer))"
)
"""Names of options whose values are secrets: `--db-pw`, `logger.auth`. A number is one only of a
password: `--max-tokens 4096`.
"""

_SUFFIX = r"(?:[._-]?(?:id|value|string|header|hash|\d+))?"

_OPTION_VALUE = r"""(?:(?<=')[^'\n]+(?=')|(?<=")[^"\n]+(?=")|[^\s"',;}-][^\s"',;}]*)"""


def _option(names: str, no_value: str) -> str:
    """Return the pattern of an option with its value in any text, also in a list of words."""
    end = rf"[\"']?(?:\s*,\s*|\s+|=){_QUOTES}"
    return rf"(?P<keep>(?<![\w-])--?{names}{_SUFFIX}{end}){no_value}{_OPTION_VALUE}"


SECRETS: tuple[tuple[str, str], ...] = (
    (
        "NAME=value",
        rf"(?P<keep>{_NAME}[\"']?\s*(?:=\s*|:\s*(?=[\s\"']))\s*{_QUOTES}){NO_VALUE}{_VALUE}",
    ),
    ("--PASSWORD value", _option(_PASSWORDS, rf"(?!{SWITCH})")),
    ("--KEY value", _option(_KEYS, NO_VALUE)),
    (
        "Authorization: Bearer value",
        r"(?P<keep>\bauthorization[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic|token|digest)\s+)?+"
        rf"|\bbearer\s+(?=\S{{12}})){NO_VALUE}[^\s\"',;}}]{{4,}}",
    ),
    (
        "netrc",
        rf"(?P<keep>(?:\blogin\s+\S+\s+|^\s*)password\s+){NO_VALUE}[^\s\"']{{4,}}",
    ),
    (
        "wandb login value",
        r"(?P<keep>\b(?:wandb|huggingface-cli|hf|hf\s+auth)\s+login\s+(?:--[\w-]+\s+)*)"
        rf"{NO_VALUE}[^\s\"';-][^\s\"';]{{7,}}",
    ),
    ("URL with a password", r"(?P<keep>://[^/\s:@]*:)(?!\\?\[removed)[^@\s/]+(?=@)"),
    (
        "signature in a URL",
        r"(?P<keep>[?&;](?:sig|signature|x-amz-signature)=)(?!\\?\[removed)[^\s&\"']{8,}",
    ),
    (
        "private key",
        r"(?P<keep>)-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z ]*-----|\Z)",
    ),
    (
        "Slack hook",
        r"(?P<keep>hooks\.slack\.com/services/)(?!\\?\[removed)[\w/\\-]{10,}",
    ),
    (
        "token by its form",
        r"(?P<keep>)(?-i:\b(?:hf\\?_[\w\\]{20,}|gh[pousr]\\?_[\w\\]{20,}|github\\?_pat\\?_[\w\\]{20,}"
        r"|glpat-[\w\\-]{15,}|sk-[\w\\-]{20,}|A[KS]IA[0-9A-Z]{16}|xox[abprs]-[\w\\-]{10,}"
        r"|eyJ[\w\\-]{10,}\.eyJ[\w\\-]+\.[\w\\-]+|AIza[\w\\-]{30,}|pypi-A[\w\\-]{20,}"
        r"|npm\\?_(?=[a-zA-Z]*\d)[\w\\]{30,}|dckr\\?_pat\\?_[\w\\-]{20,}|hvs\.[\w\\-]{20,}"
        r"|[rsp]k\\?_(?:live|test)\\?_[\w\\]{10,}|SG\.[\w\\-]{16,}\.[\w\\-]{16,}))",
    ),
)
"""Passwords, tokens and keys: by the name before them, or by their form. `keep` stays."""

FORMS = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL | re.MULTILINE)
    for _, pattern in SECRETS
)

LEAST_LENGTH = 8
"""A secret with so many characters and a digit is removed wherever it is, whatever is before it."""

_MIXED = re.compile(r"(?i)\d.*[a-z]|[a-z].*\d")


def may_be_secret(text: str) -> bool:
    """Return whether a text is long enough for a secret, and has letters and digits."""
    return len(text) >= LEAST_LENGTH and _MIXED.search(text) is not None
