"""A page as Markdown: the same contents, pictures as links to their files."""

import re
from collections.abc import Iterable, Iterator

from hpml_jobs.report.files.markdown import bullets, escaped, grid
from hpml_jobs.report.frame.answers import Answer
from hpml_jobs.report.frame.table import Block, Line, Table
from hpml_jobs.report.page.items import (
    Answers,
    Bullets,
    Commands,
    Facts,
    Figure,
    Headline,
    Item,
    Notices,
    Page,
    Quote,
    Section,
    Sheet,
    Text,
)


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
        case Text(text):
            return [escaped(text)]
        case Headline(text, figures):
            shown = ", ".join(f"{value} {name}" for value, name in figures)
            return [f"**{escaped(text)}**", *([escaped(f"{shown}.")] if shown else [])]
        case Quote(title, text):
            return [f"{head} {escaped(title)}", f"> {escaped(text)}"]
        case Bullets(lines):
            return [bullets(lines)]
        case Notices(notices):
            return [bullets(f"{consequence.value}: {text}" for consequence, text in notices)]
        case Facts(title, heads, rows):
            return [f"{head} {escaped(title)}", _grid(heads, rows)]
        case Commands(lines):
            longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
            fence = "`" * max(3, longest + 1)  # a line of commands.txt cannot end the block
            return [f"{fence}bash\n" + "\n".join(lines) + f"\n{fence}"]
        case Answers(answers):
            return [part for answer in answers for part in _answer(answer, head)]
        case Sheet():
            return _sheet(item, head)
        case Figure(picture):
            image = f"![{escaped(picture.alt)}]({picture.name}.svg)"
            return [f"{head} {escaped(picture.title)}", image, escaped(picture.caption)]


def _answer(answer: Answer, head: str) -> Iterator[str]:
    yield f"{head} {answer.question}: {escaped(answer.title)}"
    yield escaped(answer.text)
    if answer.doubt:
        yield escaped(answer.doubt)
    if answer.evidence:
        yield escaped(f"Evidence: {answer.evidence}.")


def _sheet(sheet: Sheet, head: str) -> list[str]:
    table = sheet.table
    return [
        f"{head} {escaped(table.title)}",
        *([escaped(table.answer)] if table.answer else []),
        *([grid(table)] if table.lines else []),
        *([escaped("\n".join(sheet.caption))] if sheet.caption else []),
        *([bullets(sheet.notes)] if sheet.notes else []),
    ]


def _grid(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table of words."""
    cells = [tuple(map(escaped, row)) for row in rows]
    table = Table(
        label="",
        title="",
        corner=heads[0],
        blocks=tuple(Block(head=head, words=True) for head in heads[1:]),
        lines=tuple(Line(label=row[0], texts=row[1:]) for row in cells),
        caption=(),
        setting="",
    )
    return grid(table)
