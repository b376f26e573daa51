"""What a page is made of, without its format: sections of text, tables, pictures and commands."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from hpml_jobs.report.frame.answers import Answer
from hpml_jobs.report.frame.picture import Picture
from hpml_jobs.report.frame.table import Table


class Consequence(StrEnum):
    """What a warning means for the numbers that it is about."""

    UNUSABLE = "cannot be used"
    DOUBTFUL = "warning"
    LIMITED = "note"


def with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a part of a page in which every text is changed, pictures not."""
    if type(value) is str:
        return change(value)
    if isinstance(value, tuple):
        parts = [with_texts(part, change) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.asdict(value).items()
        changed = {name: with_texts(part, change) for name, part in fields}
        return msgspec.structs.replace(value, **changed)
    return value


class Text(NamedTuple):
    """A paragraph; a lead is larger."""

    text: str
    is_lead: bool = False


class Headline(NamedTuple):
    """The answer of a study: what to ask for, and its main figures, each a value and its name."""

    text: str
    figures: tuple[tuple[str, str], ...] = ()


class Quote(NamedTuple):
    """A paragraph that is ready to be copied."""

    title: str
    text: str


class Bullets(NamedTuple):
    """A list of sentences."""

    lines: tuple[str, ...]


class Notices(NamedTuple):
    """Warnings, each with its consequence."""

    lines: tuple[tuple[Consequence, str], ...]


class Facts(NamedTuple):
    """A table of words."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Commands(NamedTuple):
    """Lines for a shell."""

    lines: tuple[str, ...]


class Answers(NamedTuple):
    """The lab's questions with their answers."""

    answers: tuple[Answer, ...]


class Sheet(NamedTuple):
    """A table of the report, with the part of its caption and notes that is shown below it."""

    table: Table
    caption: tuple[str, ...]
    notes: tuple[str, ...]
    is_folded: bool = False


class Figure(NamedTuple):
    """A picture of the report."""

    picture: Picture


Item = Text | Headline | Quote | Bullets | Notices | Facts | Commands | Answers | Sheet | Figure


class Section(NamedTuple):
    """A heading with what is below it; `anchor` is unique on the page."""

    anchor: str
    title: str
    items: tuple[Item, ...] = ()
    sections: "tuple[Section, ...]" = ()


class Page(NamedTuple):
    """A page; `subtitle` says what ran, `footer` how the page was made."""

    title: str
    subtitle: tuple[str, ...]
    sections: tuple[Section, ...]
    footer: str
