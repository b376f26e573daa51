"""The arguments of a script without the secrets in them."""

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from enum import Enum

from hpml_jobs.core.script import REMOVED
from hpml_jobs.study.secret_forms import FORMS, LEAST_LENGTH, NUMBER, SWITCH

_ARGUMENTS = re.compile(r"[+~]{0,2}args=")


class _Kind(Enum):
    """What the name of an option says of its value."""

    PASSWORD = "password"  # noqa: S105 - a kind; a number is one too
    KEY = "key"
    OTHER = "other"


_PASSWORDS = re.compile(
    r"(?:.*(?:passw(?:or)?d|pass_?phrase|passcode|secret|cred(?:ential)?|pass|pw|pwd)s?|pin|otp)"
)
_KEYS = re.compile(
    r".*(?:token|key|auth)s?|authori[sz]ation|authentication|licen[cs]e|cookies?|session|sid|jwt|pat"
    r"|sas|dsn|signature|webhook|bearer"
)
_FIRST = re.compile(r"passw(?:or)?d|passphrase|secret|token|apikey")
_SUFFIX = re.compile(r"id|value|string|header|hash|\d+")
_WORDS = frozenset(
    ("monkey", "turkey", "hockey", "donkey", "whiskey", "bypass", "compass")
)
"""Words that end as the name of a secret does."""

_PAIR = re.compile(
    r"""(?P<keep>(?<![\w-])["']?(?P<name>[\w.-]{1,60})["']?\s*[=:]\s*["']?)"""
    r"""(?P<value>(?<=")[^"]+|(?<=')[^']+|[^\s"',;}\]]+)"""
)
"""`key=value` and `"key": "value"` within a word."""

_PLAIN = re.compile(r"[\w@%+=:,./{}\[\]-]+")
"""A word that needs no quotes; placeholders are read by us, not by a shell."""


class PublicArguments:
    """Replaces the secrets in the arguments of scripts: `--api-key [removed]`.

    Of several secrets each has a number, so that different arguments stay different.
    """

    def __init__(self, arguments: Iterable[str]) -> None:
        secrets = {secret for text in arguments for secret in _secrets_of(text)}
        self._marks = dict.fromkeys(secrets, REMOVED)
        if len(secrets) > 1:
            numbered = enumerate(sorted(secrets), start=1)
            self._marks = {
                secret: f"{REMOVED[:-1]}-{number}]" for number, secret in numbered
            }

    @property
    def secrets(self) -> frozenset[str]:
        """The secrets that it replaces."""
        return frozenset(self._marks)

    @property
    def long_secrets(self) -> frozenset[str]:
        """Those that cannot be a common word, so that they are removed wherever they are."""
        return frozenset(
            secret for secret in self._marks if len(secret) >= LEAST_LENGTH
        )

    def text(self, arguments: str) -> str:
        """Return arguments without secrets, as they were typed if there is none."""
        words = words_of(arguments)
        public = [
            self.known(w)
            for w in _replaced(words, lambda s: self._marks.get(s, REMOVED))
        ]
        return arguments if public == words else " ".join(map(_quoted, public))

    def known(self, text: str) -> str:
        """Return any text without the long ones of the secrets."""
        for secret in sorted(self.long_secrets, key=len, reverse=True):
            text = text.replace(secret, self._marks[secret])
        return text

    def prose(self, text: str) -> str:
        """Return a message without secrets, also those that its own form shows."""
        text = self.known(text)
        for form in FORMS:
            text = form.sub(rf"\g<keep>{REMOVED}", text)
        return text

    def command(self, command: str) -> str:
        """Return a command line whose word `args=` is without secrets."""
        try:
            words = shlex.split(command)
        except ValueError:  # its quotes are not closed: the line was damaged
            return command
        public = []
        for word in words:
            key = _ARGUMENTS.match(word)
            public.append(key[0] + self.text(word[key.end() :]) if key else word)
        return command if public == words else shlex.join(public)


def arguments_in(command: str) -> list[str]:
    """Return the arguments of the script in a command line that submitted it."""
    keys = [(word, _ARGUMENTS.match(word)) for word in shlex.split(command)]
    return [word[key.end() :] for word, key in keys if key]


def words_of(arguments: str) -> list[str]:
    """Return the words of arguments; where quotes are not closed, what blanks separate."""
    try:
        return shlex.split(arguments)
    except ValueError:
        return arguments.split()


def _quoted(word: str) -> str:
    return word if _PLAIN.fullmatch(word) else shlex.quote(word)


def _secrets_of(arguments: str) -> list[str]:
    secrets = list[str]()

    def noted(secret: str) -> str:
        secrets.append(secret)
        return REMOVED

    _replaced(words_of(arguments), noted)
    return secrets


def _replaced(words: Sequence[str], mark: Callable[[str], str]) -> list[str]:
    """Return words with a mark in place of each secret."""
    pairs = zip(["", *words], words, strict=False)
    return [_replaced_word(before, word, mark) for before, word in pairs]


def _replaced_word(before: str, word: str, mark: Callable[[str], str]) -> str:
    """Return a word with marks; the word before may be the option that it is the value of."""
    is_option = before.startswith("-") and "=" not in before
    is_short_option = word.startswith("-") and len(word) < LEAST_LENGTH
    is_next_option = word.startswith("--") or is_short_option
    if is_option and not is_next_option and _is_secret(before, word):
        return mark(word)
    name, is_pair, value = word.partition("=")
    if is_pair and re.fullmatch(r"[\w.+~-]+", name) and _is_secret(name, value):
        return f"{name}={mark(value)}"

    def marked(match: re.Match[str]) -> str:
        return match["keep"] + mark(match[0][len(match["keep"]) :])

    def marked_pair(match: re.Match[str]) -> str:
        return marked(match) if _is_secret(match["name"], match["value"]) else match[0]

    for form in FORMS:
        word = form.sub(marked, word)
    return _PAIR.sub(marked_pair, word)


_NO_SECRET = re.compile(rf"(?:{SWITCH}|bearer|basic|token|digest)", re.IGNORECASE)
_COUNT = re.compile(NUMBER, re.IGNORECASE)


def _is_secret(name: str, value: str) -> bool:
    """Return whether the value of an option is a secret; a number is one only of a password."""
    kind = _kind(name)
    if kind is _Kind.OTHER or not value or _NO_SECRET.match(value):
        return False
    return kind is _Kind.PASSWORD or _COUNT.match(value) is None


def _kind(name: str) -> _Kind:
    """Return what the name of an option says: `--wandbKey`, `logger.auth`, `--token_wandb`.

    >>> [_kind(n).value for n in ("--dbPw", "hub_token", "--tokenizer", "--api-key-id", "monkey")]
    ['password', 'key', 'other', 'key', 'other']
    """
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    parts = [part for part in re.split(r"[^a-z0-9]+", parted) if part]
    while len(parts) > 1 and _SUFFIX.fullmatch(parts[-1]):
        parts.pop()
    if not parts or parts[-1] in _WORDS:
        return _Kind.OTHER
    last = re.sub(r"\d+$", "", parts[-1])
    if _PASSWORDS.fullmatch(last) or _PASSWORDS.fullmatch("_".join(parts[-2:])):
        return _Kind.PASSWORD
    is_key = _KEYS.fullmatch(last) or any(map(_FIRST.fullmatch, parts))
    return _Kind.KEY if is_key else _Kind.OTHER
