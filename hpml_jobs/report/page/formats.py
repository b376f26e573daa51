"""What a page is made of, and how it is written: as Markdown, and as one HTML file."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from hpml_jobs.core.text import is_command
from hpml_jobs.report.files.markdown import bullets, escaped, grid, shown
from hpml_jobs.report.frame.captions import MARK
from hpml_jobs.report.frame.numbers import DASH, OOM
from hpml_jobs.report.frame.picture import Picture, svg_address
from hpml_jobs.report.frame.table import Table

if TYPE_CHECKING:
    from jinja2 import Environment


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


class Paragraph(NamedTuple):
    """A paragraph."""

    text: str


class Headline(NamedTuple):
    """The answer of a study: what to ask for, and its main figures, each a value and its name."""

    text: str
    figures: tuple[tuple[str, str], ...] = ()


class Bullets(NamedTuple):
    """A list of sentences."""

    lines: tuple[str, ...]


class FactTable(NamedTuple):
    """A table of words."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Commands(NamedTuple):
    """Lines for a shell."""

    lines: tuple[str, ...]


class ShownTable(NamedTuple):
    """A table of the report, with the part of its caption and notes that is shown below it.

    `is_open`: never folded.
    """

    table: Table
    caption: tuple[str, ...]
    notes: tuple[str, ...]
    is_open: bool = False


class Figure(NamedTuple):
    """A picture of the report."""

    picture: Picture


Item = Paragraph | Headline | Bullets | FactTable | Commands | ShownTable | Figure


class Section(NamedTuple):
    """A heading with what is below it; `anchor` is unique; one with a `summary` is folded."""

    anchor: str
    title: str
    items: tuple[Item, ...] = ()
    summary: str = ""
    sections: "tuple[Section, ...]" = ()


class Page(NamedTuple):
    """A page; `subtitle` is below its title."""

    title: str
    sections: tuple[Section, ...]
    footer: str
    subtitle: tuple[str, ...] = ()


def markdown_document(page: Page) -> str:
    """Return the page as Markdown."""
    parts = [f"# {escaped(page.title)}", *map(escaped, page.subtitle)]
    for section in page.sections:
        parts += _section(section, 2)
    parts.append(escaped(page.footer))
    return "\n\n".join(parts) + "\n"


def _section(section: Section, level: int) -> Iterator[str]:
    yield f"{'#' * level} {escaped(section.title)}"
    for item in section.items:
        yield from _item(item, level + 1)
    for below in section.sections:
        yield from _section(below, level + 1)


def _item(item: Item, level: int) -> Iterable[str]:
    head = "#" * level
    match item:
        case Paragraph(text):
            return [escaped(text)]
        case Headline(text, figures):
            lead = f"**{escaped(text)}**"
            figures_text = ", ".join(f"{value} {name}" for value, name in figures)
            return [lead, escaped(f"{figures_text}.")] if figures else [lead]
        case Bullets(lines):
            return [bullets(lines)]
        case FactTable(title, heads, rows):
            cells = [heads, *(tuple(map(escaped, row)) for row in rows)]
            left = [True] * len(heads)
            return [f"{head} {escaped(title)}", grid(cells, left)]
        case Commands(lines):
            # indented: no backticks in a line can end it
            return ["\n".join(f"    {line}" for line in lines)]
        case ShownTable(table, caption, notes):
            return shown(head, table, caption, notes)
        case Figure(picture):
            image = f"![{escaped(picture.alt)}]({picture.name}.png)"
            return [f"{head} {escaped(picture.title)}", image, escaped(picture.caption)]


_NO_BREAK = re.compile(
    r"(?<=\d) (?=%|(m?s|[kMGT]?i?B|GB/s|[a-z]+s/s)\b(?!=))|(?<=,) (?=[-\d.]+])"
)
"""The spaces of `84 %`, `0.687 s`, `237 images/s` and `[0.39, 0.55]`: lines do not break there."""


def html_document(page: Page) -> str:
    """Return the page as HTML; every text is escaped."""
    template = _environment().get_template("page.html")
    page = with_texts(page, lambda text: _NO_BREAK.sub("\u00a0", text))
    return template.render(page=page) + "\n"


@cache
def _environment() -> "Environment":
    """Return jinja2 with the templates of this package."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - heavy

    environment = Environment(
        loader=PackageLoader("hpml_jobs.report.page", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["prose"] = _prose
    environment.globals |= {"kind": _kind, "address": svg_address, "looks": _looks}
    return environment


def _prose(text: str) -> str:
    """Return a text as HTML; one click selects a command in it, which is a line of its own."""
    from markupsafe import Markup, escape  # noqa: PLC0415 - part of jinja2

    command = Markup('<code class="command">{}</code>')
    lines = text.split("\n")
    parts = [
        command.format(line) if is_command(line) else escape(line) for line in lines
    ]
    return Markup("\n").join(parts)


def _kind(item: Item) -> str:
    """Return the name of an item's macro."""
    return type(item).__name__.lower()


def _looks(text: str) -> str:
    """Return the class of a table cell by its text."""
    if text.startswith(MARK):
        return "doubtful"
    return {DASH: "absent", OOM: "oom"}.get(text, "")
