"""A picture of a report: its figure, and the words around it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure


NAMED = 6
"""The most items that a sentence lists by name."""


class Picture(NamedTuple):
    """A figure without heading and caption, and the words that belong to it.

    `alt` says in one sentence what it shows, with its main numbers. `caption` says how they were
    measured and what is not drawn. `name` is that of its files, and is set by `plots.pictures`.
    """

    title: str
    figure: "Figure"
    alt: str
    caption: str
    name: str = ""


def listed(items: Sequence[str], separator: str = ", ") -> str:
    """Return the first items of a list in words, and how many more there are.

    >>> listed(["a", "b"]), listed(list("abcdefgh"))
    ('a, b', 'a, b, c, d, e, f and 2 more')
    """
    more = f" and {len(items) - NAMED} more" if len(items) > NAMED else ""
    return separator.join(items[:NAMED]) + more


def not_drawn(what: Sequence[str], where: str) -> str:
    """Return a sentence on what was omitted and which file has it; it names the first few.

    >>> not_drawn(["ddp 2-GPU"], "curves.csv")
    'Not drawn, see curves.csv: ddp 2-GPU.'
    """
    return f"Not drawn, see {where}: {listed(what)}." if what else ""


def sentences(*parts: str) -> str:
    """Return sentences as one text, without the empty ones."""
    return " ".join(part for part in parts if part)
