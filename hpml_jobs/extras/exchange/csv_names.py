"""What the names of runs say of their cells, by a pattern that the user gives."""

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.core.text import one_of
from hpml_jobs.extras.exchange.csv_columns import COLUMNS
from hpml_jobs.extras.exchange.csv_rows import FieldError, whole

EXAMPLE = "names='{gpus}gpu_bs{batch}'"

_NUMBER = "(?<![0-9])[0-9]+(?![0-9])"
_STRATEGY = "|".join(sorted(Strategy, key=len, reverse=True))


class NamePattern(NamedTuple):
    """A pattern of names: `{column}` is the text of a column, and `*` any text.

    `longest` and `shortest` are the same pattern. They read a name alike if it can be read in only
    one way.
    """

    text: str
    columns: tuple[str, ...]
    longest: re.Pattern[str]
    shortest: re.Pattern[str]

    def read(self, name: str) -> dict[str, str]:
        """Return the texts of the columns in the name of a run.

        Raises:
            FieldError: the name does not fit the pattern, or fits it in several ways.
        """
        longest, shortest = self.longest.fullmatch(name), self.shortest.fullmatch(name)
        if longest is None or shortest is None:
            raise FieldError(f"its name does not fit names='{self.text}'")
        if longest.groups() != shortest.groups():
            ways = f"{self._way(shortest)} or {self._way(longest)}"
            raise FieldError(
                f"its name fits names='{self.text}' in several ways ({ways})"
            )
        return {column: longest[column] for column in self.columns}

    def _way(self, match: re.Match[str]) -> str:
        return ", ".join(f"{column}={match[column]}" for column in self.columns)


ANY_NAME = NamePattern("*", (), re.compile(".*"), re.compile(".*"))
"""The pattern that says nothing of cells."""


def name_pattern(text: str, columns: Collection[str]) -> NamePattern:
    """Return the pattern that a text means; its placeholders are among these columns.

    >>> name_pattern("{gpus}gpu_bs{batch}*", ["gpus", "batch"]).read("4gpu_bs64-seed1")
    {'gpus': '4', 'batch': '64'}

    Raises:
        UsageError: it has none, unknown, repeated or adjacent placeholders.
    """
    place = f"names='{text}'"
    parts = re.split(r"(\{[^{}]*\}|\*)", text)
    used = [part[1:-1] for part in parts[1::2] if part != "*"]
    for name in used:
        if name not in columns:
            raise UsageError(
                f"{place}: {{{name}}} is no column of a cell: {one_of(name, columns)}"
            )
        if used.count(name) > 1:
            raise UsageError(f"{place}: {{{name}}} is given {used.count(name)} times")
    if not used:
        raise UsageError(f"{place}: write the columns in braces, as in {EXAMPLE}")
    _check_free_text(parts, place)
    return NamePattern(text, tuple(used), _compiled(parts, ""), _compiled(parts, "?"))


def _check_free_text(parts: Sequence[str], place: str) -> None:
    """Refuse stray braces, and placeholders with nothing between them."""
    for part in parts[::2]:
        if not {"{", "}"}.isdisjoint(part):
            raise UsageError(f"{place}: {part!r} has a brace without its pair")
    for first, between, second in zip(
        parts[1::2], parts[2::2], parts[3::2], strict=False
    ):
        is_same_kind = (first == "*") == (second == "*")  # a number ends where * begins
        if is_same_kind and not between:
            raise UsageError(
                f"{place}: {first} and {second} touch; write what is between them"
            )


def _compiled(parts: Collection[str], mark: str) -> re.Pattern[str]:
    """Return the regular expression; free text is short with the mark ?, else long."""
    pieces = []
    for number, part in enumerate(parts):
        name = part[1:-1]
        if number % 2 == 0:
            pieces.append(re.escape(part))
        elif part == "*":
            pieces.append(f"(.*{mark})")
        elif name == "strategy":
            pieces.append(f"(?P<strategy>(?i:{_STRATEGY}))")
        else:
            kind = _NUMBER if COLUMNS[name].parse is whole else f".+{mark}"
            pieces.append(f"(?P<{name}>{kind})")
    return re.compile("".join(pieces), re.DOTALL)
