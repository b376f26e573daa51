"""How cells and plans look on screen."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hpml_jobs.slurm import Outcome
from hpml_jobs.study import CellState
from hpml_jobs.verdicts.judgement import in_short
from hpml_jobs.wording import counted

COLOURS = {
    Outcome.OK: "green",
    Outcome.OOM: "yellow",
    Outcome.RUNNING: "cyan",
    Outcome.WAITING: "blue",
    Outcome.MISSING: "magenta",
    Outcome.UNKNOWN: "magenta",
}
"""Everything else went wrong and is red."""


def coloured(outcome: Outcome) -> Text:
    """An outcome's word in its colour."""
    return Text(outcome.value, style=COLOURS.get(outcome, "red"))


def states_table(states: Iterable[CellState]) -> Table:
    """Cells with outcome, job, reason, and the checks that did not pass, by name."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("cell", "state", "job"):
        table.add_column(column, no_wrap=True)
    table.add_column("")
    for state in states:
        reason = state.reason.removesuffix(f", job {state.job}")  # it has its own column
        parts = [reason, state.warning, in_short(state.verdicts)]
        words = "; ".join(part for part in parts if part)
        table.add_row(state.slug, coloured(state.outcome), state.job or "–", Text(words))
    return table


def totals(states: Iterable[CellState]) -> str:
    """How many cells stand where, e.g. `9 cells: 7 ok, 2 running`."""
    counts = Counter(state.outcome for state in states)
    each = ", ".join(f"{counts[outcome]} {outcome.value}" for outcome in Outcome if counts[outcome])
    return f"{counted(counts.total(), 'cell')}: {each or 'none'}"


def sent_table(rows: Iterable[tuple[str, str, str, str]]) -> Table:
    """Cells with what became of them at submission: (slug, shape, job, why)."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("cell", "job", "asks for", ""):
        table.add_column(column, no_wrap=column != "")
    for slug, shape, job, why in rows:
        table.add_row(slug, job, shape, Text(why, style="dim"))
    return table


def values_table(rows: Iterable[tuple[str, str, str]]) -> Table:
    """Every value with where it came from."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("key", "value", "from"):
        table.add_column(column)
    for key, value, origin in rows:
        table.add_row(key, Text(value), Text(origin, style="dim"))
    return table


def console() -> Console:
    """Standard output; as wide as it needs to be where nobody's window limits it."""
    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=200)


def print_json(value: Any) -> None:
    """Indented JSON on standard output, for programs."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=1).decode())
