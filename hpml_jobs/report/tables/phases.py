"""Full table of the phases of the instrumented epoch, with their range over ranks."""

from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.rows import Row
from hpml_jobs.report.merge.run_values import PHASES, phases_of
from hpml_jobs.report.table import Line, Table
from hpml_jobs.report.tables.builder import (
    UNMEASURED,
    About,
    Column,
    Columns,
    left_out,
    of_values,
    places,
    rest,
    table,
)
from hpml_jobs.report.text import captions
from hpml_jobs.report.text.numbers import percent, seconds

PHASES_CAPTION = (
    "E2, seconds per epoch on the rank with the longest one; least..most over all ranks (and runs) "
    "below it where they differ. The six phases add up to the epoch but for closure: |epoch - sum| "
    "/ epoch. E2/E1: what the instruments cost. Collectives inside forward (ddp's buffers) are in "
    "forward here, and in Comm of Table 2. Pack: of backward, copies into and out of messages and "
    "averaging by hand."
)


def phases(group: ConditionGroup) -> Table | None:
    """Where the instrumented epoch went."""

    def column(name: str) -> Column[Row]:
        head = "comm" if name == "comm_exposed" else name
        return Column(f"phase_{name}_s", head, of_values(f"phase_{name}_s"), seconds)

    heads = (
        Columns("seconds of E2", tuple(column(name) for name in PHASES)),
        Columns(
            "%",
            (
                Column("closure", "closure", of_values("closure"), percent),
                Column("overhead", "E2/E1", of_values("overhead"), percent),
            ),
        ),
        Columns("of backward", (Column("pack_s", "pack", of_values("pack_s"), seconds),)),
        Columns("", tuple(column for name in PHASES for column in _ends(group, name))),
    )
    own = [row for row in group.timed if row.values and row.values.closure is not None]
    if not own:
        return None
    shown = places(group, own, heads, lambda row: _over_ranks(group, row))
    about = About(
        "phases",
        "Phases of the instrumented epoch",
        "E2",
        (PHASES_CAPTION, captions.runs(own)),
        on_screen=False,
    )
    lost = rest(group.rows, own)
    return table(group, about, shown, left_out(group, UNMEASURED, lost))


def _ends(group: ConditionGroup, name: str) -> tuple[Column[Row], Column[Row]]:
    """The least and the most of a phase over ranks and runs, for the CSV."""
    return (
        Column(f"phase_{name}_least_s", "", lambda row: _ranges(group, row)[name][0]),
        Column(f"phase_{name}_most_s", "", lambda row: _ranges(group, row)[name][1]),
    )


def _ranges(group: ConditionGroup, row: Row) -> dict[str, tuple[float, float]]:
    found = [rank.phases for record in group.records(row) for rank in record.ranks]
    known = [phases_of(one) for one in found if one]
    return {
        name: (min(values), max(values))
        for name in PHASES
        if (values := [one[f"phase_{name}_s"] for one in known])
    }


def _over_ranks(group: ConditionGroup, row: Row) -> Line | None:
    if row.gpus == 1 and len(row.runs) == 1:
        return None
    texts = [_range(*ends) for ends in _ranges(group, row).values()]
    if not any(texts):
        return None
    return Line(label="  least..most", texts=(*texts, "", "", ""))


def _range(least: float, most: float) -> str:
    return "" if seconds(least) == seconds(most) else f"{seconds(least)}..{seconds(most)}"
