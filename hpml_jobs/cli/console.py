"""Tables and lines of states, usage and plans for the screen; JSON for programs."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import msgspec
from rich.console import Console as RichConsole
from rich.console import OverflowMethod
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from hpml_jobs.cli.terminal import discard
from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.check_result import in_short
from hpml_jobs.core.text import (
    counted,
    duration_text,
    hours_text,
    printable,
    time_text,
    unix_time,
)
from hpml_jobs.slurm.jobs import is_slurm
from hpml_jobs.study.snapshot import CellState

if TYPE_CHECKING:
    from hpml_jobs.status.usage import Usage
    from hpml_jobs.submit.explain import CellRow, ConfigValue
    from hpml_jobs.submit.selection import Selection


class Console(RichConsole):
    """A console of rich: its own colours reach the terminal, control characters of texts do not."""

    def __init__(self, *, stderr: bool = False, **options: Any) -> None:
        stream: Any = sys.stderr if stderr else sys.stdout
        super().__init__(file=getattr(stream, "stream", stream), **options)

    def render(self, *arguments: Any, **options: Any) -> Iterable[Segment]:
        """Yield the parts of what is printed."""
        for segment in super().render(*arguments, **options):
            text = segment.text if segment.control else printable(segment.text)
            yield segment._replace(text=text)

    def on_broken_pipe(self) -> None:
        """Print no more, where rich would end the program: the reader of a pipe has left."""
        discard(self.file)


COLOURS = {
    Outcome.OK: "green",
    Outcome.OOM: "yellow",
    Outcome.RUNNING: "cyan",
    Outcome.PENDING: "blue",
    Outcome.MISSING: "magenta",
    Outcome.UNKNOWN: "magenta",
}
"""Colours of outcomes; every other outcome is a failure and red."""


_URGENCY = {Outcome.RUNNING: -1, Outcome.PENDING: 1, Outcome.OK: 2}
"""Outcomes by urgency, the others have 0: the least are shown if not all cells fit."""

MOST_LISTED = 30
"""Number of cells from which on states and plans are summarized."""


def plain_table(fixed: Iterable[str], foldable: Iterable[str]) -> Table:
    """Return a table with these headings and no lines; texts of `fixed` columns are not folded."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in fixed:
        table.add_column(heading, no_wrap=True)
    for heading in foldable:
        table.add_column(heading)
    return table


def states_table(cells: Sequence[CellState], rows: int | None) -> Table:
    """Return a table of cells: name, state, SLURM's job, time queued, time run, reason.

    With `rows` it has at most so many rows: the most urgent cells, and the number of others.
    """
    listed = cells
    if rows is not None and len(cells) > rows:
        by_urgency = sorted(cells, key=lambda state: _URGENCY.get(state.outcome, 0))
        listed = by_urgency[: max(1, rows - 1)]
    has_times = any(s.queued_s is not None or s.elapsed_s is not None for s in cells)
    has_jobs = any(is_slurm(str(state.job)) for state in cells)
    headings = ["cell", "state"] + ["job"] * has_jobs + ["waited", "ran"] * has_times
    table = plain_table(headings, ("",))
    for column in table.columns[:3:2]:  # name and job fold, the state does not
        column.no_wrap, column.overflow = False, "fold"
    overflow: OverflowMethod = "ellipsis" if rows else "fold"
    for state in listed:
        outcome = Text(state.outcome.value, COLOURS.get(state.outcome, "red"))
        columns: list[str | Text] = [state.slug, outcome]
        if has_jobs:
            columns.append(state.job or "–")
        if has_times:
            columns += [_span(state.queued_s), _span(state.elapsed_s)]
        reason = Text(_reason(state), no_wrap=rows is not None, overflow=overflow)
        table.add_row(*columns, reason)
    if len(listed) < len(cells):
        table.add_row(Text(f"… and {len(cells) - len(listed)} more", style="dim"))
    return table


def _reason(state: CellState) -> str:
    """Return reason, progress, restarts and warnings of a cell in one line."""
    progress = f"{state.brief}: {state.doing}" if state.doing else state.brief
    restarts = f"restarted {state.restarts} x" if state.restarts else ""
    parts = [
        progress,
        _expected_start(state),
        restarts,
        state.warning,
        in_short(state.checks),
    ]
    return "; ".join(filter(None, parts))


def _expected_start(state: CellState) -> str:
    """Return when SLURM expects a pending cell to start."""
    moment, now = unix_time(state.starts or "") or 0.0, time.time()
    return f"expected to start {time_text(moment, now)}" if moment > now else ""


def _span(seconds: float | None) -> str:
    return "–" if seconds is None else duration_text(seconds)


def totals(states: Collection[CellState]) -> str:
    """Return the number of cells by outcome, e.g. `9 cells: 7 ok, 2 running`."""
    return f"{counted(len(states), 'cell')}: {by_outcome(states)}"


def by_outcome(states: Iterable[CellState]) -> str:
    """Return the numbers of cells alone: `7 ok, 2 running`."""
    counts = Counter(state.outcome for state in states)
    numbers = [f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome]]
    return ", ".join(numbers) or "none"


def usage_line(used: "Usage") -> str:
    """Return the resources that a study requested and used, in a sentence."""
    amount = duration_text(used.used_s)
    if used.gpu_hours_asked:
        hours = hours_text(used.gpu_hours_used)
        amount = f"{hours} of {hours_text(used.gpu_hours_asked)} requested GPU-hours"
    text = f"{counted(used.runs, 'run')} used {amount}"
    if used.queue_median_s is not None:
        text += f"; median wait in the queue {duration_text(used.queue_median_s)}"
    return text


def sent_table(rows: "Sequence[CellRow]", *, all_cells: bool) -> Table:
    """Return a table of the cells of a plan: job, what it requests, why it is submitted or not.

    Of a large plan only the first cells are shown unless `all_cells`.
    """
    shown = rows if all_cells else rows[:MOST_LISTED]
    table = plain_table(("cell", "job"), ("resources", ""))
    for row in shown:
        table.add_row(row.cell, row.job, row.shape, Text(row.why, style="dim"))
    if len(shown) < len(rows):
        table.add_row(f"… and {len(rows) - len(shown)} more: --all shows them")
    return table


def show_preview(selection: "Selection", *, json: bool, all_cells: bool) -> str:
    """Print what a submission of the selected cells would be; return why it would be refused."""
    from hpml_jobs.submit.explain import preview_of

    preview, plan = preview_of(selection), selection.plan
    if json:
        print_json(preview)
        return preview.refused
    out = console()
    out.print(sent_table(preview.cells, all_cells=all_cells))
    cells = counted(len(selection.send), "cell")
    what = f"{cells} as {counted(len(preview.scripts), 'job')}"
    if plan.cluster.is_local:
        hosts = ", ".join(plan.cluster.hosts or ["this machine"])
        what = f"{cells} on {hosts}, one after another"
    if selection.left_out:
        what += f" ({len(selection.left_out)} left out)"
    print(f"nothing was submitted; it would be {what}")
    if preview.gpu_hours and plan.goal is None:
        print(f"time limits: {hours_text(preview.gpu_hours)} GPU-hours in all")
    print(f"study {preview.study} in {plan.study.root}")
    if preview.blocks:
        table = plain_table(("block", "cells"), ())
        for row in preview.blocks:
            table.add_row(row.block, str(row.cells))
        out.print(table)
    for sentence in filter(None, (preview.overlap, preview.exclusive)):
        print(sentence)
    _show_values(out, preview.values, all_values=all_cells)
    for job in preview.scripts:
        if all_cells:
            print(f"\n---- {job.shape}\n{job.script}", end="")
        else:
            print(f"script of {job.shape}; --all prints it")
    return preview.refused


def _show_values(
    out: Console, values: "list[ConfigValue]", *, all_values: bool
) -> None:
    """Print keys with their values and origins; without `all_values` none that is usual."""
    usual = ("conf/", "command line", "derived")
    rows = [row for row in values if all_values or not row.origin.startswith(usual)]
    if not rows:
        return
    print()
    table = plain_table((), ("key", "value", "from"))
    for row in rows:
        table.add_row(row.key, Text(row.value), Text(row.origin, style="dim"))
    out.print(table)
    if not all_values:
        print("the other values: --all")


def console() -> Console:
    """Return a console on standard output, 200 columns wide if it is no terminal."""
    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=200)


def say(text: object, stream: TextIO | None = None) -> None:
    """Print a line now, on standard output by default; a reader that has left is no error.

    So a closed pipe (`| head -1`) does not end a submission between two jobs.
    """
    stream = stream or sys.stdout
    try:
        print(text, file=stream, flush=True)
    except BrokenPipeError:
        discard(stream)


def print_note(*sentences: str) -> None:
    """Print sentences on standard error, a line each; an empty one is left out."""
    for sentence in filter(None, sentences):
        say(sentence, sys.stderr)


def print_json(value: Any) -> None:
    """Print indented JSON on standard output."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=1).decode())


def print_changes(stream: TextIO | None = None) -> Callable[[str], None]:
    """Return a function that prints a line, unless it is the line it printed last."""
    last = ""

    def print_change(line: str) -> None:
        nonlocal last
        if line != last:
            last = line
            print(line, file=stream, flush=True)

    return print_change
