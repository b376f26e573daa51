"""Personal data and secrets in the texts of a study, and what is written in their place."""

import csv
import html
import io
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from operator import ne
from pathlib import Path
from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from hpml_jobs.core.environment import SECRET_KEY
from hpml_jobs.core.paths import login_name
from hpml_jobs.core.script import REMOVED
from hpml_jobs.study.arguments import PublicArguments
from hpml_jobs.study.secret_forms import FORMS, may_be_secret

HOME, USER, ACCOUNT, EMAIL = "/home/user", "user", "account", "user@example.org"
NO_ADDRESS = "0.0.0.0"  # noqa: S104 - no socket is bound to it

IDENTITY_KEY = "cell"
"""What a cell is named after; a change would make it another cell."""

SLURM_FACTS = re.compile(
    r"SLURM_(\w*(CPU|GPU|MEM|NTASKS|NNODES|NUM_NODES|TRES|RESTART)\w*"
    r"|(ARRAY_)?(JOB|TASK)_ID|\w*NODELIST|JOB_PARTITION|JOB_QOS|CLUSTER_NAME|NODEID)"
)
"""The variables of SLURM that are kept: what a job was given."""

_HOMES = re.compile(r"(?P<folder>/(?:home|homes|Users)/)(?P<login>[\w.@-]+)")
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+")
_UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
_ADDRESS = re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b")
_OTHER_USERS = re.compile(r"(?<=users: )[\w.-]+(?:, [\w.-]+)*")
_CANCELLER = re.compile(r"(?<=CANCELLED) by \d+(?: \([^)]*\))?")
_ACCOUNT_OPTION = re.compile(
    r"(?P<keep>--account[= ]|\baccount[=:]\s*|\s-A[ =]?)(?P<account>(?:[\w.+-]|\\_)+)"
)

_SLURM_COLUMN = "facts_slurm_"
_HOST_KEYS = frozenset(("host", "hosts", "node", "excluded"))
_ACCOUNT_KEYS = frozenset(("account", "wckey", "SLURM_JOB_ACCOUNT"))
_ARGUMENTS_KEY = "args"
_NO_LOGINS = frozenset(("root", "user", "nobody", ""))


class Names(NamedTuple):
    """Names of people, accounts and hosts that a study's files contain, and secrets."""

    logins: frozenset[str]
    accounts: frozenset[str]
    hosts: tuple[str, ...]
    secrets: frozenset[str] = frozenset()
    arguments: frozenset[str] = frozenset()  # of scripts


def names_in(documents: Iterable[Any], texts: Iterable[str]) -> Names:
    """Return the names in JSON documents and texts, and the login name of this process."""
    logins = {login_name(), os.environ.get("USER", "")}
    accounts, hosts = set[str](), set[str]()
    secrets, arguments = set[str](), set[str]()
    for key, text in chain.from_iterable(map(_strings, documents)):
        logins |= _logins_in(text)
        if key in _ACCOUNT_KEYS:
            accounts.add(text)
        if key in _HOST_KEYS:
            hosts.add(text)
        if key == _ARGUMENTS_KEY:
            arguments.add(text)
        secrets |= {text} if SECRET_KEY.fullmatch(key) else _secrets_in(text)
    for text in texts:
        logins |= _logins_in(text)
        accounts |= {
            match["account"].replace("\\", "")
            for match in _ACCOUNT_OPTION.finditer(text)
        }
        secrets |= _secrets_in(text)
    return Names(
        frozenset(logins - _NO_LOGINS),
        frozenset(accounts - {ACCOUNT, ""}),
        tuple(sorted(hosts - {""})),
        # only those that cannot be a word or a number that is in other texts too
        frozenset(filter(may_be_secret, secrets))
        | PublicArguments(arguments).long_secrets,
        frozenset(arguments),
    )


def _logins_in(text: str) -> set[str]:
    return {match["login"] for match in _HOMES.finditer(text)}


def _secrets_in(text: str) -> set[str]:
    """Return the values in a text that are secrets by their name or form, without escapes."""
    matches = (match for pattern in FORMS for match in pattern.finditer(text))
    return {match[0][len(match["keep"]) :].replace("\\_", "_") for match in matches}


def _strings(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield every string of a document with the key it is under."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item, key)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _strings(item, name)


class Redactor:
    """Replaces personal data and secrets, and counts the secrets that it removed.

    Always: home folders, login names in paths, email addresses, accounts, other users, secrets.
    If `anonymous` also IPv4 addresses, and the names of hosts and UUIDs (of GPUs and boots), each
    by one of its own, so that facts by host and by GPU stay apart.
    """

    def __init__(self, names: Names, *, anonymous: bool) -> None:
        self.secrets: Counter[str] = Counter()  # removed, by file
        self._file = ""
        self._anonymous = anonymous
        self._rules = [
            (_CANCELLER, ""),
            (_EMAIL, EMAIL),
            *_path_rules(names.logins),
            *_account_rules(names.accounts),
        ]
        self._secrets = [*FORMS, *_known_secrets(names.secrets)]
        self._public = PublicArguments(names.arguments)
        self._arguments = [
            text for text in names.arguments if self._public.text(text) != text
        ]
        numbered = enumerate(names.hosts, start=1)
        self._hosts = {host: f"host-{number}" for number, host in numbered}
        longest_first = sorted(self._hosts, key=len, reverse=True)
        words = "|".join(re.escape(host) for host in longest_first)
        self._host = (
            re.compile(rf"(?<![\w.-])({words})(?:\.[\w-]+)*(?![\w-])")
            if words
            else None
        )

    def text(self, text: str, file: str) -> str:
        """Return a text without personal data and secrets; `file` is where it is from."""
        self._file = file
        return self._text(text)

    def commands(self, text: str, file: str) -> str:
        """Return lines of commands without personal data and secrets."""
        self._file = file
        lines = text.split("\n")
        public = [self._public.command(line) for line in lines]
        self.secrets[file] += sum(map(ne, lines, public))
        return self._text("\n".join(public))

    def document(self, value: Any, file: str) -> Any:
        """Return a JSON document without them; the identity of a cell is left as it is."""
        self._file = file
        return self._value(value, "")

    def sheet(self, text: str, file: str) -> str:
        """Return a CSV file without them; its columns are named after the keys of records."""
        self._file = file
        rows = list(csv.reader(io.StringIO(text)))
        if not rows:
            return text
        names, *lines = rows
        keys = [_key_of_column(name) for name in names]
        kept = [
            n for n, (fact, key) in enumerate(keys) if not fact or self._keeps_fact(key)
        ]
        changed = [[names[n] for n in kept]]
        for line in lines:
            columns = [n for n in kept if n < len(line)]
            changed.append([self._string(line[n], keys[n][1]) for n in columns])
        if changed == rows:
            return text
        written = io.StringIO()
        csv.writer(written, lineterminator="\n").writerows(changed)
        return written.getvalue()

    def _text(self, text: str) -> str:
        for arguments in self._arguments:
            self.secrets[self._file] += text.count(arguments)
            text = text.replace(arguments, self._public.text(arguments))
        for pattern in self._secrets:
            text, count = pattern.subn(rf"\g<keep>{REMOVED}", text)
            self.secrets[self._file] += count
        for pattern, replacement in self._rules:
            text = pattern.sub(replacement, text)
        text = _OTHER_USERS.sub(lambda match: re.sub(r"[\w.-]+", USER, match[0]), text)
        if self._anonymous:
            text = _UUID.sub(lambda match: str(uuid5(NAMESPACE_URL, match[0])), text)
            text = _ADDRESS.sub(NO_ADDRESS, text)
            if self._host is not None:
                text = self._host.sub(lambda match: self._hosts[match[1]], text)
        return text

    def _value(self, value: Any, key: str) -> Any:
        if isinstance(value, str):
            return self._string(value, key)
        if isinstance(value, list):
            return [self._value(item, key) for item in value]
        if not isinstance(value, dict):
            return value
        if key == "slurm":
            value = {
                name: item for name, item in value.items() if self._keeps_fact(name)
            }
        redacted = {}
        for name, item in value.items():
            redact = self._identity if name == IDENTITY_KEY else self._value
            redacted[name] = redact(item, name)
        return redacted

    def _identity(self, value: Any, key: str) -> Any:
        """Return what a cell is named after: of it only the arguments of a script may change."""
        if isinstance(value, dict):
            return {name: self._identity(item, name) for name, item in value.items()}
        if isinstance(value, str) and key == _ARGUMENTS_KEY:
            self.secrets[self._file] += value in self._arguments
            return self._public.text(value)
        return value

    def _keeps_fact(self, name: str) -> bool:
        is_kept = SLURM_FACTS.fullmatch(name) is not None
        return is_kept and not (self._anonymous and name.endswith("NODELIST"))

    def _string(self, text: str, key: str) -> str:
        if key in _ACCOUNT_KEYS and text:
            return ACCOUNT
        if key == "users":  # of other jobs on the nodes
            return USER
        if text and SECRET_KEY.fullmatch(key) and text != REMOVED:
            self.secrets[self._file] += 1
            return REMOVED
        return self._text(text)


def _key_of_column(name: str) -> tuple[bool, str]:
    """Return whether a column is a variable of SLURM, and the key that its values are under."""
    _, is_fact, variable = name.partition(_SLURM_COLUMN)
    return bool(is_fact), variable if is_fact else name.rpartition("_")[2]


def _known_secrets(secrets: Iterable[str]) -> Iterator[re.Pattern[str]]:
    """Yield a pattern of each secret, as it is or escaped for Markdown, LaTeX, HTML or JSON."""
    for secret in sorted(secrets, key=len, reverse=True):
        forms = (_escaped_forms(character) for character in secret)
        yield re.compile(rf"(?P<keep>){''.join(forms)}")


def _escaped_forms(character: str) -> str:
    if character.isalnum():
        return character
    entity = html.escape(character)
    return rf"(?:\\?{re.escape(character)}|{re.escape(entity)}|&#{ord(character)};)"


def _path_rules(logins: Iterable[str]) -> Iterator[tuple[re.Pattern[str], str]]:
    """Yield the rules for home folders and for login names in other paths."""
    end = r"(?=[/\s\"':;,)\]]|$)"
    home = Path("~").expanduser() if "HOME" in os.environ else Path("/")
    if len(home.parts) > 1:
        yield re.compile(rf"(?<![\w/.]){re.escape(str(home))}{end}"), HOME
    yield _HOMES, rf"\g<folder>{USER}"
    for login in sorted(logins):
        yield re.compile(rf"(?<=/){_also_in_latex(login)}{end}"), USER


def _account_rules(accounts: Iterable[str]) -> Iterator[tuple[re.Pattern[str], str]]:
    """Yield the rules for accounts: after `account=`, and wherever a name is no common word."""
    yield _ACCOUNT_OPTION, rf"\g<keep>{ACCOUNT}"
    for account in sorted(accounts):
        if re.search(r"[\d_-]", account):
            yield re.compile(rf"(?<![\w-]){_also_in_latex(account)}(?![\w-])"), ACCOUNT


def _also_in_latex(name: str) -> str:
    r"""Return a pattern of a name that may have `\_` for `_`."""
    return re.escape(name).replace("_", r"\\?_")
