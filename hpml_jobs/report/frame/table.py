"""A table as text for every output format: lines, blocks of columns, notes, unrounded sheet."""

from collections.abc import Iterable
from typing import Any

from hpml_jobs.core.value import Value

SHORT = 40
"""Caption lines shorter than this, such as `One run.`, are repeated under every table."""


class Block(Value, frozen=True, kw_only=True):
    """Columns under one heading; without column names it is a single column.

    `words`: left-aligned columns of text.
    """

    head: str
    columns: tuple[str, ...] = ()
    words: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns; a single empty name if it has none."""
        return self.columns or ("",)

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.names)


class Line(Value, frozen=True, kw_only=True):
    """One row: its label, then a text for every column."""

    label: str
    texts: tuple[str, ...]


class Sheet(Value, frozen=True, kw_only=True):
    """The same numbers for programs: unrounded, units in the names, None for no number."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


class Table(Value, frozen=True, kw_only=True):
    """A table of rounded numbers with its caption and notes; `label` is unique in a group.

    `setting` (what was trained, on what) belongs to the caption; where all tables are in view, once
    is enough. Some tables have nothing but lines of text: their notes. `answer`: what the table
    says to a question of the lab, in a sentence above it.
    """

    label: str
    title: str
    corner: str
    blocks: tuple[Block, ...]
    lines: tuple[Line, ...]
    caption: tuple[str, ...]
    setting: str
    notes: tuple[str, ...] = ()
    sheet: Sheet | None = None
    answer: str = ""

    @property
    def two_level(self) -> bool:
        """Whether the columns of blocks have names."""
        return any(block.columns for block in self.blocks)

    @property
    def words(self) -> tuple[bool, ...]:
        """For each column, whether it is aligned to the left."""
        return tuple(block.words for block in self.blocks for _ in block.names)

    @property
    def firsts(self) -> tuple[bool, ...]:
        """For each column, whether it is the first of its block."""
        return tuple(
            number == 0 for block in self.blocks for number, _ in enumerate(block.names)
        )

    def caption_after(self, printed: set[str], extra: Iterable[str] = ()) -> list[str]:
        """Return the caption lines that are not in `printed`, or short; add them to it."""
        lines = [*self.caption, *extra]
        new = [line for line in lines if line not in printed or len(line) < SHORT]
        printed |= {*lines}
        return new

    def notes_after(self, printed: set[str]) -> list[str]:
        """Return the notes that are not in `printed`; add them to it."""
        new = [note for note in self.notes if note not in printed]
        printed |= {*self.notes}
        return new
