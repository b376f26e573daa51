"""Full table of the largest batch that fits, and the reason why no larger one does."""

from itertools import groupby
from operator import attrgetter
from typing import Annotated, NamedTuple

from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.builder import (
    Columns,
    Shown,
    TableText,
    columns_of,
    item_table,
    place_columns,
)
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import count, gigabytes
from hpml_jobs.report.frame.rows import Row, Setup
from hpml_jobs.report.frame.table import Table
from hpml_jobs.slurm.states import Outcome

CAPTION = (
    "Batch per {unit}; every batch is tried in a new process. Memory: the most that any rank used"
    " with the largest batch that fits (GB = 1e9 bytes)."
)


class Largest(NamedTuple):
    """The largest batch of a row that was measured, its memory in bytes, and why no larger one."""

    setup: Setup
    batch: Annotated[int | None, Shown("largest batch", count)]
    memory_bytes: Annotated[int | None, Shown("memory, GB", gigabytes)]
    stopped: Annotated[str, Shown("limit", words=True)]


def largest(group: ConditionGroup) -> Table | None:
    """Return the largest batch of rows that climbed a ladder or ran out of memory; None without."""
    rungs = {result.slug for result in group.cells if result.ladder}
    largest_batches = []
    for setup, members in groupby(group.rows, lambda row: row.setup):
        rows = list(members)
        climbs = any(rungs & set(row.cells) for row in rows)
        if climbs or any(row.outcome is Outcome.OOM for row in rows):
            largest_batches.append(_of_row(group, setup, rows, climbs))
    if not largest_batches:
        return None
    heads: tuple[Columns[Largest], ...] = (
        Columns("", place_columns(attrgetter("setup"))),
        *columns_of(Largest, without=["setup"]),
    )
    caption = CAPTION.format(unit=captions.unit(group.device))
    text = TableText("largest", "Largest batch that fits", "", (caption,))
    return item_table(
        [group],
        text,
        ((captions.full_label(item.setup, group.device), item) for item in largest_batches),
        heads,
    )


def _of_row(group: ConditionGroup, setup: Setup, rows: list[Row], climbed: bool) -> Largest:
    """Return the largest batch of a setup, from its rows by batch."""
    measured = [row for row in rows if row.timing]
    best = measured[-1] if measured else None
    records = group.records(best) if best else []
    memory = [rank.peak_memory_bytes or 0 for record in records for rank in record.ranks]
    batch = best.batch_per_gpu if best else None
    return Largest(setup, batch, max(memory, default=0) or None, _stop(rows, batch, climbed))


def _stop(rows: list[Row], best: int | None, climbed: bool) -> str:
    """Return why there is no larger batch: the next one's outcome, or why none was tried."""
    beyond = [row for row in rows if best is None or row.batch_per_gpu > best]
    if not beyond:
        return (
            "the next is larger than one rank's share of the data"
            if climbed
            else "no larger one was requested"
        )
    words = "ran out of memory" if beyond[0].outcome is Outcome.OOM else beyond[0].outcome.value
    return f"{beyond[0].batch_per_gpu} {words}"
