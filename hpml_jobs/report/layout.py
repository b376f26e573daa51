"""A table ready to be drawn, whatever it is drawn on: text in rows and in blocks of columns."""

from hpml_jobs.cell import Settled


class Block(Settled, frozen=True, kw_only=True):
    """Columns under one heading; without names of their own they are one column."""

    head: str
    columns: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each of its columns."""
        return self.columns or ("",)

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.names)


class Line(Settled, frozen=True, kw_only=True):
    """One row: its label, then a text for every column."""

    label: str
    texts: tuple[str, ...]


class Table(Settled, frozen=True, kw_only=True):
    """Numbers rounded, and what is to stand under them; `label` is unique in a group.

    `setting` (what was trained, on what) belongs to the caption; where all tables are in view, once
    is enough.
    """

    label: str
    title: str
    corner: str
    blocks: tuple[Block, ...]
    lines: tuple[Line, ...]
    caption: tuple[str, ...]
    setting: str
    notes: tuple[str, ...] = ()

    @property
    def two_level(self) -> bool:
        """Whether the blocks' columns have names of their own."""
        return any(block.columns for block in self.blocks)
