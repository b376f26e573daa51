"""The file of a personal profile: keys with their values and sources, as YAML with comments."""

import json
import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import NamedTuple

INDENT = "  "

_PLAIN = re.compile(r"[A-Za-z/][\w./@+-]*", re.ASCII)
"""Texts that YAML reads as themselves, if they are none of its words."""

_YAML_WORDS = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))

WIDTH = 100
"""Columns of the file; a longer comment has lines of its own, above its key."""


class Entry(NamedTuple):
    """A key with its value, and where the value comes from; if not `is_set`, a commented line."""

    key: str
    value: str | int | tuple[str, ...]
    source: str
    is_set: bool = True

    @property
    def assignment(self) -> str:
        """The key and the value as YAML; `# ` comes before it if it is not in effect."""
        if isinstance(self.value, tuple):
            text = f"[{', '.join(map(json.dumps, self.value))}]"
        else:
            text = scalar(self.value)
        mark = "" if self.is_set else "# "
        return f"{mark}{self.key}: {text}"


class ProfileBlock(NamedTuple):
    """Entries below a path of keys, e.g. ("clusters", "greene"), and a heading."""

    heading: str
    entries: tuple[Entry, ...]
    path: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, str]:
        """The entries that are in effect, as they are typed on a command line."""
        prefix = "cluster." if self.path else ""
        return {
            f"{prefix}{entry.key}": str(entry.value)
            for entry in self.entries
            if entry.is_set
        }


def profile_text(head: Iterable[str], blocks: Iterable[ProfileBlock]) -> str:
    """Return the file: the lines of its head as comments, then the blocks."""
    lines = [f"# {_one_line(line)}".rstrip() for line in head]
    for block in blocks:
        lines += ["", f"# ---- {_one_line(block.heading)} ----", *_block_lines(block)]
    return "\n".join(lines) + "\n"


def _block_lines(block: ProfileBlock) -> Iterator[str]:
    for depth, key in enumerate(block.path):
        yield f"{INDENT * depth}{scalar(key)}:"
    indent = INDENT * len(block.path)
    for entry in block.entries:
        source = _one_line(entry.source)
        line = f"{indent}{entry.assignment}  # {source}"
        if len(line) <= WIDTH:
            yield line
        else:
            yield from textwrap.wrap(
                source,
                WIDTH,
                initial_indent=f"{indent}## ",
                subsequent_indent=f"{indent}## ",
            )
            yield indent + entry.assignment


def scalar(value: str | int) -> str:
    """Return a value as YAML that is read as the same value, also by OmegaConf.

    >>> scalar("/scratch/me"), scalar("007"), scalar("no"), scalar(20), scalar("a: b")
    ('/scratch/me', '"007"', '"no"', '20', '"a: b"')
    """
    if isinstance(value, int):
        return str(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _YAML_WORDS:
        return value
    return json.dumps(value.replace("${", "\\${"), ensure_ascii=False)


def _one_line(text: str) -> str:
    return " ".join(text.split())
