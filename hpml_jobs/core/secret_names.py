"""Names of passwords, tokens and keys: their values are neither recorded nor given away."""

import re

IN_NAMES = (
    r"(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|access[_-]?key|account[_-]?key"
    r"|private[_-]?key|credentials?)"
)
"""The words in any name, as a pattern without regard to case."""

SECRET_KEY = re.compile(rf".*{IN_NAMES}", re.IGNORECASE)
"""A key of a document with one of them."""

SECRET_VARIABLE = re.compile(rf"{IN_NAMES}|_key|auth", re.IGNORECASE)
"""Part of an environment variable's name: there every key and authorization is a secret, while in
texts `sort_key` and `author` are common."""
